import pyarrow as pa

class BatchFormats:
    def __init__(self, schema: pa.Schema) -> None: ...
