"""Texts and conversations of all kinds, the same ones for a seed.

`documents(paths, draw)` cuts files into documents of varied lengths; `awkward(draw)` makes those that tokenizers stumble over;
`conversations(texts, count, draw)` draws conversations with the documents' text in them.
"""
import collections
import itertools
import math
import unicodedata

MOST_FILE = 1 << 20
SHORTEST, LONGEST = 8, 8000
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|eot|>",
           "<|fim_prefix|>", "<|reserved_special_token_7|>", "<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]", "<SPECIAL_20>", "<0x0A>",
           "<0xE2>", "▁", "▁▁the", "<EOT>", "<｜begin▁of▁sentence｜>"]
SPACES = " \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2003\u2007\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u2060\ufeff\u180e"
EMOJI = ["👨‍👩‍👧‍👦", "👩🏽‍🚀", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️‍🔥", "☺︎☺️", "1️⃣#️⃣", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
         "🧑‍🤝‍🧑", "👋🏿", "🫠", "🪿"]
COMPOSED = ["é", "ö", "Å", "ǖ", "ḍ̇", "ệ", "각", "힣", "ガ", "पि", "ড়", "ﬁ", "ſ", "Ω", "K", "½", "①", "ｱﾞ", "שׁ", "﷽", "豈", "𝔄", "ᾷ", "ΐ"]
LETTERS = "'’sStTrReEmMdDlLvVſKıİǅßẞǰﬀΣσς"
# What looks like a mistake and is none.
ODD = ["\0", "a\0b", "\ufffd", "\ufffd\ufffdx", "\ufffe", "\uffff", "\U0010ffff", "\U0001ffff x", "\ufeffBOM", "\ue000\uf8ff", "\U000f0000",
       "\x7f\x80\x9f", "\ud7ff\ue000", "\u061c\u200e\u200f\u202a\u202e\u2066x\u2069", "\u0300", "\u0301\u0301\u0301x", "\u200d", "\U000e0001",
       "\\u00e9\\xff", "%C3%A9", "Ã©â‚¬"]


def text_of(path):
    try:
        return path.read_bytes()[:MOST_FILE].decode()
    except (OSError, UnicodeDecodeError):
        return ""


def files_of(path):
    """Hidden folders and build outputs hold no text of anybody's."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*")
                  if file.is_file() and not any(part.startswith((".", "build")) for part in file.relative_to(path).parts))


def cut(text, draw):
    """Lengths are spread evenly over orders of magnitude."""
    while text:
        length = round(math.exp(draw.uniform(math.log(SHORTEST), math.log(LONGEST))))
        yield text[:length]
        text = text[length:]


def documents(files, draw):
    found = [document for file in files for document in cut(text_of(file), draw)]
    draw.shuffle(found)
    return found


def letters_by_script():
    """The letters whose Unicode names begin with the same word."""
    scripts = collections.defaultdict(list)
    for code in range(0x110000):
        letter = chr(code)
        if unicodedata.category(letter)[0] in "LMN":
            scripts[unicodedata.name(letter, "?").split()[0]].append(letter)
    return scripts


def words(letters, draw):
    count = draw.randint(1, 40)
    return "".join("".join(draw.choices(letters, k=draw.randint(1, 9))) + draw.choice([" ", " ", "  ", "\n", ", ", "."]) for _ in range(count))


def of_scripts(draw):
    for letters in letters_by_script().values():
        yield "".join(letters[:200])
        for _ in range(4):
            yield words(letters, draw)


def controls():
    for code in [*range(0x20), *range(0x7f, 0xa0)]:
        yield from (chr(code), f"a{chr(code)}b", f" {chr(code)} ", chr(code) * 7 + "x")


def normal_forms(draw):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        for text in COMPOSED:
            yield f"a{unicodedata.normalize(form, text)} b"
        yield unicodedata.normalize(form, "".join(COMPOSED))
    marks = [chr(code) for code in range(0x110000) if unicodedata.combining(chr(code))]
    for _ in range(500):
        yield "".join(draw.choice("aeiouAEOUngKΑω가ㄱが ") + "".join(draw.choices(marks, k=draw.randint(0, 5))) for _ in range(draw.randint(1, 8)))


def emoji(draw):
    for _ in range(300):
        yield draw.choice(["", " ", "x"]).join(draw.choices(EMOJI, k=draw.randint(1, 6))) + draw.choice(["", " ", "\u200d", "\ufe0f", "!"])


def special(draw):
    pieces = SPECIAL + [" ", "  ", "\n", "a", "é", "<", "<|", "|>", "<|im", "im_start|>", "<s", "/s>", "[", "Hello", " world"]
    for text in SPECIAL:
        for cut_at in range(1, len(text)):
            yield text[:cut_at]
            yield "x " + text[cut_at:]
        yield from (text, text * 3, f" {text} ", f"\n{text}\n", f"a{text}b", text.upper(), text[:3] + text + text[3:])
    for _ in range(500):
        yield "".join(draw.choices(pieces, k=draw.randint(1, 12)))


def endings(draw):
    for _ in range(100):
        yield words("abcdefg", draw).strip() + draw.choice(["<", " <", "<<", "<|", "<s", "\n<", "é<", "|", "[", "[INS", "&lt;", "'", " "])


def spaces(draw):
    for letter in SPACES:
        for count in (1, 2, 3, 4, 7, 8, 16, 31, 64, 200):
            yield from (letter * count, letter * count + "a", "a" + letter * count, f"a{letter * count}b", f".{letter * count}\n{letter}x")
    for _ in range(1000):
        runs = (draw.choice(SPACES) * draw.randint(1, 5) if draw.random() < 0.7 else draw.choice(["a", "Bc", "12", "!", "é", "中"]) for _ in range(12))
        yield "".join(runs)


def contractions(draw):
    for _ in range(500):
        yield "".join(draw.choices(LETTERS + " 1", k=draw.randint(1, 12)))


def digits(draw):
    numbers = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] == "N"]
    for _ in range(300):
        yield "".join(draw.choice(numbers if draw.random() < 0.4 else "0123456789., a") for _ in range(draw.randint(1, 30)))


def long_lines(draw):
    for piece in ("a", "ab", " ", "\n", "\t", "=", "-", "1", "é", "中", "👍", "a ", "\r\n", "<", "日本語", "'s", "\u0301"):
        yield piece * (20_000 // len(piece))
    yield "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=20_000))
    yield "".join(draw.choices("0123456789abcdef", k=50_000))
    yield "".join(chr(draw.randint(0x4e00, 0x9fff)) for _ in range(20_000))
    yield " ".join(str(draw.random()) for _ in range(10_000))


def code_points(draw):
    """Over all planes, planes as likely as each other or the first ones likelier."""
    for most in (0x7f, 0x7ff, 0x2fff, 0xffff, 0x1ffff, 0x3ffff, 0x10ffff):
        for _ in range(250):
            codes = (draw.randint(0, most) for _ in range(draw.randint(1, 60)))
            yield "".join(chr(code) for code in codes if not 0xd800 <= code <= 0xdfff)


def mixtures(draw):
    kinds = ["abcXYZ", "0123", " \n\t", ".,!?'\"()<>|_-/",
             "éßøñ", "привет", "中文日本", "한국어", "עברית", "العربية", "हिन्दी", "ไทย", "".join(EMOJI), "\u0301\u200d\ufe0f"]
    for _ in range(1000):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(1, 80)))


def awkward(draw):
    kinds = (of_scripts, normal_forms, emoji, special, endings, spaces, contractions, digits, long_lines, code_points, mixtures)
    made = itertools.chain([""], ODD, controls(), *(kind(draw) for kind in kinds))
    return list(dict.fromkeys(made))


def conversations(texts, count, draw):
    """Most of them take turns, as templates want it; some have roles in any order."""
    short = [text[:400] for text in texts]

    def message(role):
        content = draw.choice(["", " ", "\n"]) + draw.choice(short) + draw.choice(["", "  ", "\n\n", "</think>\n\nYes", "\t"])
        return {"role": role, "content": draw.choice(short) if draw.random() < 0.6 else content}

    for _ in range(count):
        turns = draw.randint(1, 9)
        roles = [("user", "assistant")[i % 2] for i in range(turns)]
        if draw.random() < 0.3:
            roles = ["system"] + roles
        if draw.random() < 0.1:
            roles = [draw.choice(["system", "user", "assistant"]) for _ in range(turns)]
        yield [message(role) for role in roles]
