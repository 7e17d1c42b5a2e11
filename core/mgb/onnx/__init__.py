"""ONNX files: writing traces, reading models. The `onnx` package is imported when it is first needed."""
