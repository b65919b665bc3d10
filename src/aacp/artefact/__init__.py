"""The pruned network as files: safetensors with the cut in the header, and ONNX."""
