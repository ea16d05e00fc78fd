"""Named hypothesis strategies, shared by all tests."""

from hypothesis import strategies as st

from memtier import models, recipes
from memtier.layout import STAGES

byte_counts = st.integers(min_value=0, max_value=10**18)
parameter_counts = st.integers(min_value=1, max_value=10**13)
gpu_counts = st.integers(min_value=1, max_value=4096)
stages = st.sampled_from(STAGES)
recipe_names = st.sampled_from(recipes.names())
count_recipe_names = st.sampled_from([name for name in recipes.names() if not recipes.get(name).needs_shapes])


@st.composite
def small_models(draw):
    """Small Llamas whose dimensions are often odd, so that rows do not divide evenly."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return models.from_config({
        "model_type": "llama",
        "vocab_size": draw(st.integers(3, 2000)),
        "hidden_size": draw(st.integers(1, 40)) * kv_heads * group,
        "intermediate_size": draw(st.integers(1, 700)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.integers(1, 20)) * 2,
        "tie_word_embeddings": draw(st.booleans()),
    })
