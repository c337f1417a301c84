"""Makes small tokenizers of the kinds that models have, and what Hugging Face's libraries make of some texts with them.

Usage: make_golden.py golden   (by make_golden, with tokenizers, transformers and sentencepiece)

For each kind: golden/KIND/tokenizer.json or spiece.model, tokenizer_config.json, and expected.json with {"texts": [{"text", "tokens", "decoded"}],
"ends": [prefix, suffix], "chats": [{"messages", "text", "prompt"}]}.
"""
import io
import json
import pathlib
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# Of OpenAI's cl100k, which Qwen and Llama 3 have with other numbers of digits.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CORPUS = [
    "A penstock is a pipe that brings water to a turbine; its gate is opened a little at a time.",
    "The planner cuts a global batch into micro-batches, and the pipeline runs them in the order that wastes least.",
    "Samples of very different lengths: 12, 345, 6789 tokens. It's what we've got, isn't it?",
    "def plan(lengths):\n    return sorted(lengths, reverse=True)\n\n\nif __name__ == '__main__':\n\tprint(plan([3, 1, 2]))\n",
    "Über den Wolken muß die Freiheit wohl grenzenlos sein. Ça va? Señor, el niño. Привет, мир! 日本語のテキスト。",
] * 4
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = CORPUS[:5] + [
    "", " ", "  leading and trailing  ", "\n\n\n  \t\t x", "\r\n\r\nend\r\n", "I'LL we've DON'T it's", "1234567 8 90", "a<", "x <|",
    "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|><|endoftext|>", "e\u0301 is \u00e9, \ufb01 stays", "👨\u200d👩\u200d👧 🎉", "\u200b\ufeffx",
    "ſ ǅ İ", "̈start", "한국어 ไทย עברית العربية",
    # A space to some libraries, and a letter that is new in Unicode 16.
    "\t\t\u180e \u180ex", "a\U000105c0\U000105c1 \u3000\u00a0\u2003x\x85",
    # Marks of Unicode 9 and of later ones, in the wrong order; what composes in later ones alone.
    "a\u0301\u0323 a\u0eb9\u0eba\u0323 e\u1abf\u0301 \U00011935\U00011930 \u1df7\u0316\u0301",
]
CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "What is \"x\"?\né"}, {"role": "assistant", "content": " A letter "},
     {"role": "user", "content": "And y?"}],
]
CHATML = ("{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}{%- endfor %}"
          "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
LLAMA = ("{% for message in messages %}{% set content = '<|im_start|>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' %}"
         "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n\\n' }}{% endif %}")


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def split(digits):
    pattern = Regex(PATTERN.replace("DIGITS", digits))
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, "isolated"), byte_level(use_regex=False)])


def byte_pairs(pre_tokenizer, normalizer=None, size=700):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def gpt2():
    return byte_pairs(byte_level())


def qwen2():
    return byte_pairs(split(""), normalizers.NFC())


def llama3():
    tokenizer = byte_pairs(split("{1,3}"))
    begin = "<|endoftext|>"
    template = processors.TemplateProcessing(single=begin + " $A", pair=begin + " $A " + begin + " $B", special_tokens=[(begin, 0)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def smollm():
    return byte_pairs(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]))


def deepseek():
    """Several splits, the first of which leave text over; a normalizer of no steps."""
    isolated = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", PATTERN.replace("DIGITS", ""))]
    return byte_pairs(pre_tokenizers.Sequence([*isolated, byte_level(use_regex=False)]), normalizers.Sequence([]))


def anthropic():
    return byte_pairs(byte_level(), normalizers.NFKC())


def llama2():
    """Words with U+2581 in front, bytes for what is not in the vocabulary, as converted from SentencePiece."""
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?=▁)"), "isolated")
    bytes_ = ["<0x{:02X}>".format(byte) for byte in range(256)]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, special_tokens=special + bytes_, show_progress=False))
    # Trained on words, used on whole texts.
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = None
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def mistral():
    """As Llama 2, with a space in front of the text alone, and none behind special tokens."""
    tokenizer = llama2()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    return tokenizer


def gemma():
    """As Llama 2, with no space in front; tokens that were added, with the spaces around them."""
    tokenizer = llama2()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("tokens", lstrip=True, rstrip=True, normalized=False), AddedToken("ça va", normalized=True)])
    return tokenizer


# What SentencePiece's table has of them; the published tables have 240 KB.
RULES = {"ﬁ": "fi", "\u00a0": " ", "\u3000": " ", "e\u0301": "é", "\t": " ", "\r": "", "Ü": "U\u0308", "ſ": "s", "\u200b": " ", "a": "a"}


def unigram(cut, steps=()):
    """With a table of characters, as T5 and others have it."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for text, becomes in RULES.items():
            rules.write(" ".join(f"{ord(c):X}" for c in text) + "\t" + " ".join(f"{ord(c):X}" for c in becomes) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(line for text in CORPUS for line in text.splitlines() if line), model_writer=model,
                                                 vocab_size=300, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                                 normalization_rule_tsv=rules.name, hard_vocab_limit=False, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], unk_id=2))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), *steps])
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<pad>", "</s>", "<unk>")])
    return tokenizer


def metaspace():
    return pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)


def t5_json():
    return unigram(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]))


def mt5():
    return unigram(metaspace(), [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])


KINDS = {"gpt2": (gpt2, None), "qwen2": (qwen2, CHATML), "llama3": (llama3, LLAMA), "smollm": (smollm, CHATML), "llama2": (llama2, None),
         "deepseek": (deepseek, CHATML), "anthropic": (anthropic, None), "mistral": (mistral, None), "gemma": (gemma, None), "t5_json": (t5_json, None),
         "mt5": (mt5, None)}


def config_of(kind, template):
    begin, end = ("<s>", "</s>") if kind in ("llama2", "mistral", "gemma", "t5_json", "mt5") else ("<|endoftext|>", "<|im_end|>")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": {"content": end, "__type": "AddedToken"}}
    return dict(config, chat_template=template) if template else config


def expected_of(tokenizer, folder, template):
    texts = []
    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        texts.append({"text": text, "tokens": tokens, "decoded": tokenizer.decode(tokens)})
    around = tokenizer.encode("a", add_special_tokens=True).ids
    own = tokenizer.encode("a", add_special_tokens=False).ids
    at = next(i for i in range(len(around)) if around[i:i + len(own)] == own)
    expected = {"versions": [tokenizers.__version__, transformers.__version__], "texts": texts, "ends": [around[:at], around[at + len(own):]],
                "chats": []}
    if template:
        fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|endoftext|>", eos_token="<|im_end|>",
                                                    chat_template=template)
        for messages in CHATS:
            text, prompt = (fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask) for ask in (False, True))
            expected["chats"].append({"messages": messages, "text": text, "prompt": prompt})
    return expected


def make_t5(folder):
    """SentencePiece's own file, and what that library makes of the texts."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(line for text in CORPUS for line in text.splitlines() if line), model_writer=model,
                                             vocab_size=300, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=1.0,
                                             normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2)
    (folder / "spiece.model").write_bytes(model.getvalue())
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "eos_token": "</s>"}) + "\n")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    texts = []
    for text in TEXTS:
        tokens = processor.encode(text)
        # Of unknown characters nothing is left.
        texts.append({"text": text, "tokens": tokens, "decoded": None if 2 in tokens else processor.decode(tokens)})
    expected = {"versions": [sentencepiece.__version__], "texts": texts, "ends": [[], [1]], "chats": []}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def main():
    root = pathlib.Path(sys.argv[1])
    for kind, (make, template) in KINDS.items():
        folder = root / kind
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = make()
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
        (folder / "tokenizer_config.json").write_text(json.dumps(config_of(kind, template), indent=1) + "\n")
        (folder / "expected.json").write_text(json.dumps(expected_of(tokenizer, folder, template)) + "\n")
    (root / "t5").mkdir(exist_ok=True)
    make_t5(root / "t5")


if __name__ == "__main__":
    main()
