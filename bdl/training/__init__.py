"""The engine: trains many trials as one program."""
