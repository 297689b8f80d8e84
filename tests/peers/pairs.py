"""What is measured beside PyTorch, by scripts/compare-pytorch and scripts/gpu-check: shapes, models, precisions, ways to compile."""

# length, batch, whether valid lengths are those of real ListOps examples
SHAPES = {"listops": (2048, 32, False), "listops-lengths": (2048, 32, True), "text-1k": (1024, 16, False),
          "text-2k": (2048, 16, False), "text-4k": (4096, 4, False), "image": (1024, 32, False),
          "bytes-2k": (2048, 8, False)}
GPU_SHAPES = SHAPES | {"text-4k": (4096, 16, False)}  # four examples would leave most of a GPU idle
LANGUAGE = ["bytes-2k"]  # shapes of a language model: protocol character-lm, which has no dropout of attention weights
CAUSAL = ["softmax-fused", "softmax", "linear"]  # what has a causal form among the peers
# ours, and the attention of PyTorch that is the same function
MODELS = {"softmax-fused": "softmax", "softmax": "softmax", "linformer": "linformer", "performer": "performer",
          "linear": "linear", "nystromformer": "nystromformer", "reformer": "reformer", "none": "none",
          **{name: name for name in ("paramixer-chord", "combiner-fixed", "routing", "clustered", "entmax15")}}
DEFAULT_MODELS = [name for name in MODELS if name != "softmax"]  # the plain form keeps its weights, as its papers' do
# Those of README's tables, and of scripts/gpu-check.
TABLE_MODELS = ["softmax-fused", "linformer", "performer", "linear", "nystromformer", "reformer", "none"]
TABLE_SHAPES = ["listops", "text-4k", "image"]
PRECISIONS = {"cpu": ["fp32", "bf16"], "cuda": ["fp32", "bf16", "tf32", "fp16"]}  # the most important first
# Words for worker.py, on a GPU.
WAYS = {"eager": [], "compile": ["--compile"], "reduce-overhead": ["--compile", "reduce-overhead"]}
