"""A model of half a million random weights: its replies are noise, its wire format, cache and metrics are vLLM's own.

usage: make_tiny.py FOLDER
"""

import sys
import sysconfig
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found,unused-ignore]
from transformers import (  # type: ignore[import-not-found,unused-ignore]
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

BEGIN, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CONTEXT_TOKENS = 4096
TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{BEGIN}' + message.role + '\\n' + (message.content or '') }}}}"
    "{% for call in message.tool_calls or [] %}{{ '\\n' + (call.function | tojson) }}{% endfor %}"
    f"{{{{ '{END}\\n' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{BEGIN}assistant\\n' }}}}{{% endif %}}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte pairs learned from the standard library's own sources, so that nothing has to be fetched."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:80]
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=[PAD, BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator((path.read_text("utf-8", "ignore") for path in sources), trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD, model_max_length=CONTEXT_TOKENS)
    made.chat_template = TEMPLATE
    return made


def model(words: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    return Qwen2ForCausalLM(shape).to(torch.bfloat16)


if __name__ == "__main__":
    folder = sys.argv[1]
    words = tokenizer()
    words.save_pretrained(folder)
    model(words).save_pretrained(folder)
