# for: file


def read_safetensors(path):
    """Tensors by name: the length of a JSON header, the header, then the numbers."""
    data = bytearray(pathlib.Path(path).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
             "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
             "BOOL": torch.bool}
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            tensors[name] = torch.frombuffer(data[begin + first:begin + end], dtype=types[entry["dtype"]])
            tensors[name] = tensors[name].reshape(entry["shape"])
    return tensors


def load(path=WEIGHTS):
    """The model with the weights of a file, in evaluation mode; in double where the weights are."""
    weights = read_safetensors(path)
    model = Model()
    if any(tensor.dtype == torch.float64 for tensor in weights.values()):
        model.double()
    model.load_state_dict(weights)
    return model.eval()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    model = load()
    dtype = next(model.parameters()).dtype
    mask, more = None, []
    if sys.argv[1].endswith(".safetensors"):
        inputs = read_safetensors(sys.argv[1])
        mask = inputs.get("mask")
        more = [inputs[name].long() for name in ("segments",) if name in inputs]
        x = inputs["values"].to(dtype) if "values" in inputs else inputs["tokens"].long()
    else:
        x = torch.tensor([[int(word) for word in sys.argv[1:]]])
    with torch.no_grad():
        print(json.dumps(model(x, mask, *more).tolist()))


if __name__ == "__main__":
    main()
