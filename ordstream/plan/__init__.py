"""A plan as a value: what a pipeline lowers to, what every runner takes."""
