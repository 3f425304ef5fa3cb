"""The tokenizer of the embedded models: whole words of the tasks and whole numbers; else bytes.

Byte-level BPE without merges: text is cut into words, numbers of up to two digits, operators,
indents, and labels such as `3)` that number the items of a list. A piece in the vocabulary is one
token, any other is spelled in bytes. So every text round-trips, 0 to 99 are single tokens, and a
label is the same token wherever its item begins, which lets an answer find it in the prompt.
`vocabulary.txt` holds the pieces that the problems of the tasks are made of, in byte-level spelling
(Ġ is a space, Ċ a line break).
"""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BOS, EOS, MASK = "<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>"
START_HEADER, END_HEADER, END_OF_TURN = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
SPECIAL = (BOS, EOS, MASK, START_HEADER, END_HEADER, END_OF_TURN)
LABEL = r"(?:^[0-9]{1,2}\)|[0-9]{1,2}\)(?= [A-Za-z0-9]))"  # ^ is the start of any line
PIECE = (
    rf"\n+ *|{LABEL}| (?=[0-9]{{1,2}}\) [A-Za-z0-9])| ?[A-Za-z]+| ?[0-9]{{1,2}}"
    r"| ?(?:####|>>>|\"\"\"|==|!=|//|\[::-1\]|[^\sA-Za-z0-9])|\s+"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
VOCABULARY = Path(__file__).with_name("vocabulary.txt")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, the same on every machine."""
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = VOCABULARY.read_text(encoding="utf-8").split()
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        mask_token=MASK,
        additional_special_tokens=[START_HEADER, END_HEADER, END_OF_TURN],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
