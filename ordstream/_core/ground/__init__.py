"""What every module of the core may use: atomics, threads, chunks, Arrow's import and export, the kernel
contract.
"""
