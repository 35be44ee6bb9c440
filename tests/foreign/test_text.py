"""Reports about tokenization and its way back: abbreviations, typographic marks, addresses."""
import os
import pty
import re
import subprocess

import pytest

from test_matrix import DEVICE, NORMA, RECIPES, norma


def tokens(text, *options):
    code, out, err = norma("tokenize", *options, stdin=(text + "\n").encode())
    assert code == 0, err
    return out.decode().rstrip("\n"), err


ABBREVIATIONS = {  # a sentence with an abbreviation before a capital or a digit: its period is no token
    "es": "Vive con la Sra. López .", "fr": "Le vol. 3 et éd. 5 M. Dupont .",
    "it": "Il sig. e il Dott. Rossi .",
    "pt": "O Exmo. Sr. Silva .", "ca": "El Sr. Puig .", "ro": "Dl. Popescu .", "nl": "Volgens prof. Jansen .",
    "sv": "Se kap. 5 .", "fi": "Kaupunki mm. Helsinki .", "is": "Sjá bls. 5 .", "et": "Vt lk. 5 .",
    "lv": "Sk. prof. Bērziņš .", "lt": "Žr. str. 5 .", "hu": "Lásd dr. Kovács .", "pl": "Pan prof. Nowak .",
    "cs": "Dům č. 5 .", "sk": "Dom č. 5 str. 7 .", "sl": "To je dr. Novak .", "el": "Ο κ. Παπαδόπουλος .",
    "ru": "Он живёт в г. Москва , ул. Ленина .", "de": "Frau Dr. Ek .", "en": "Mr. Ek .",
}


@pytest.mark.parametrize("language", ABBREVIATIONS)
def test_abbreviations(language):
    """https://github.com/moses-smt/mosesdecoder/issues/44: a list for each language."""
    expected = ABBREVIATIONS[language]
    text = expected.replace(" .", ".").replace(" ,", ",")
    assert tokens(text, "--language", language) == (expected, "")


def test_numeric_abbreviations():
    assert tokens("Zie nr. 5, nr. Acht.", "--language", "nl")[0] == "Zie nr. 5 , nr . Acht ."


def test_missing_abbreviations_are_announced():
    out, err = tokens("Bà Dr. Lan.", "--language", "vi")
    assert out == "Bà Dr. Lan ." and "no list of abbreviations" in err and "--nonbreaking-prefixes" in err


def test_files_of_moses(tmp_path):
    """Moses' own lists: a file or a folder, whose lists data folder and model contain."""
    lists = tmp_path / "nonbreaking_prefixes"
    lists.mkdir()
    (lists / "nonbreaking_prefix.xx").write_bytes("\ufeff#comment\r\nÐbc\r\nqn #NUMERIC_ONLY#\r\nd. h. c\r\n"
                                                  .encode())
    (lists / "nonbreaking_prefix.yy").write_text("zzt\n", encoding="utf-8")
    text, expected = "Ðbc. Xy qn. 5 qn. Xy Dr. Ek.", "Ðbc. Xy qn. 5 qn . Xy Dr . Ek ."
    for path in (lists, lists / "nonbreaking_prefix.xx"):
        assert tokens(text, "--language", "xx", "--nonbreaking-prefixes", path) == (expected, "")
    for path, language in ((lists, "aa"), (tmp_path / "absent", "xx")):
        code, _, err = norma("tokenize", "--language", language, "--nonbreaking-prefixes", path, stdin=b"a\n")
        assert code == 3 and str(path) in err
    (tmp_path / "empty").write_text("# nothing\n")
    code, _, err = norma("tokenize", "--nonbreaking-prefixes", tmp_path / "empty", stdin=b"a\n")
    assert code == 4 and "no abbreviation" in err
    for side in ("xx", "yy"):
        (tmp_path / f"t.{side}").write_text((text + " zzt. Xy\n") * 20, encoding="utf-8")
    code, _, err = norma("prepare", "--train", tmp_path / "t", "--valid", tmp_path / "t", "--source-lang",
                         "xx", "--target-lang", "yy", "--bpe-merges", "0", "--nonbreaking-prefixes", lists,
                         "--output", tmp_path / "d")
    assert code == 0 and "abbreviations" not in err, err
    for name in lists.iterdir():
        name.unlink()  # data folder and model do not need the files any more
    small = ["--train.updates", "1", "--model.preset", "tiny", "--train.score", "false", *DEVICE]
    assert norma("train", RECIPES / "demo.ini", "--data.folder", tmp_path / "d", "--run.folder",
                 tmp_path / "r", *small)[0] == 0
    for like in (tmp_path / "d", tmp_path / "r"):
        assert tokens(text + " zzt. Xy", "--like", like)[0] == "Ðbc. Xy qn. 5 qn . Xy Dr . Ek. zzt . Xy"
        assert tokens("Ðbc. Xy zzt. Xy", "--like", like, "--side", "target")[0] == "Ðbc . Xy zzt. Xy"
    assert norma("prepare", "--train", tmp_path / "t", "--valid", tmp_path / "t", "--like", tmp_path / "d",
                 "--output", tmp_path / "e")[0] == 0
    assert tokens(text, "--like", tmp_path / "e")[0] == expected


ROUND_TRIPS = {
    "en": ["“Hi,” she said. It’s 5 o’clock.", "The dogs’ house; ‘well’, he said. We’re O’Brien’s.",
           "See (https://a.b/c?d=1&e=2), 1/2 done at 10:30; write to foo.bar@example.org.",
           "It is www.example.org/a_b/c.html#top and/or read_me.", "Is it at http://a.b:80/? No.",
           "See https://a.org/wiki/x_(y)/z and www.b.org (here).", "Hits of the ’90s; ’tis ‹so›.",
           "Rock ’n’ roll… and “wait…”, the 1990’s, pages 10–12, 3 – so what?",
           "AT&T’s C++, C# and GTK+-based Data::Page at smb://host/x, but Tom & Jerry.",
           "It is 5 €, $5.00 or €7; 90° is not 30°C, nor 3×4 H₂O in m² of CO₂ or ±5.",
           "See <b>it</b> in <a href=\"http://a.b/c\">this page</a>, not <br/> a < b or c > d.",
           "Call f() with a[] for A1:B30, or file(s) in /proc and the /etc/passwd of Windows®.",
           "#1 of @name: ~5 press Ctrl+Shift+C or #2.", "'x' is so 'y', he said", "He said: \"No.\""],
    "es": ["¿Qué? «Sí», dijo.", "Él dijo: «¿Sí? No» y se fue."],
    "de": ["„Hallo“, sagte er. Wie geht’s?", "»Gut«, sagte Anna.", "Groß/Klein, rot/blau",
           "‚Ja‘, sagte sie. ›Nein‹, ‚gut‘.", "»Open«-Teil: 100 € und 5 % kostet’s, geht's? x.«",
           "Nun ja… Rock ’n’ Roll, 1995–1999 – genau."],
    "fr": ["C’est l’eau d’Évian.", "« Oui », dit-il.", "Attends… le rock ’n’ roll."],
    "pl": ["„Tak”, powiedział."],
    "ru": ["«Да», сказал он."],
}


@pytest.mark.parametrize("language", ROUND_TRIPS)
@pytest.mark.parametrize("protect", [[], ["--protect"]])
def test_typographic_text_comes_back(language, protect):
    """https://github.com/hplt-project/sacremoses/issues/152: apostrophes, quotes, addresses."""
    text = "\n".join(ROUND_TRIPS[language]) + "\n"
    code, out, err = norma("tokenize", "--language", language, *protect, stdin=text.encode())
    assert code == 0, err
    assert norma("detokenize", "--language", language, stdin=out)[1].decode() == text


@pytest.mark.parametrize("text, expected", [
    ("See https://a.b/c?d=1&e=2.", "See https://a.b/c?d=1&amp;e=2 ."),
    ("(see http://a.b/c_(d))", "( see http://a.b/c_(d) )"),
    ("Mail foo-bar@x.example.org, please", "Mail foo-bar@x.example.org , please"),
    ("a <b>c</b> <a href=\"x y\">d", "a &lt;b&gt; c &lt;/b&gt; &lt;a href=&quot;x y&quot;&gt; d"),
    ("1 < 2 > 1, a@b, www. x, ahttp://", "1 &lt; 2 &gt; 1 , a @ b , www. x , ahttp : / /"),
    ("http://a.b", "http://a.b"), ("", ""),
])
def test_protected(text, expected):
    """https://github.com/hplt-project/sacremoses/issues/35: the class of basic-protected-patterns."""
    assert tokens(text, "--protect")[0] == expected


def all_characters():
    """Every Unicode scalar value that can be inside a line."""
    return [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and chr(c) not in "\r\n"]


def test_every_character_of_byte_level():
    """Byte-level text is documented as kept exactly: each character, alone and between letters."""
    lines = [f"{c}a{c} {c}" for c in all_characters()]
    text = ("\n".join(lines) + "\n").encode()
    coded = norma("tokenize", "--tokenizer", "byte_level", stdin=text)[1]
    assert coded.count(b"\n") == len(lines)
    back = norma("detokenize", "--tokenizer", "byte_level", stdin=coded)[1]
    assert back == text


@pytest.mark.parametrize("unit", [None, "file", "line"])
def test_line_ends_of_byte_level(tmp_path, unit):
    """https://github.com/huggingface/tokenizers/issues/231: CRLF, except where each line is a document."""
    text = b"a\r\nb c\r\rd\n\r\nx"
    (tmp_path / "t").write_bytes(text)
    options = ["--tokenizer", "byte_level"]
    if unit:
        splits = ["--train", tmp_path / "t", "--valid", tmp_path / "t"]
        code, _, err = norma("prepare", "--format", "text", *splits, *options, "--documents", unit,
                             "--bpe-merges", "0", "--output", tmp_path / "d")
        assert code == 0, err
        options = ["--like", tmp_path / "d"]
    coded = norma("subword", *options, stdin=text)[1]
    back = norma("subword", *options, "--undo", stdin=coded)[1]
    assert back == (text.replace(b"\r\n", b"\n") if unit == "line" else text) + b"\n"


# Whitespace and control characters of a line.
SPACES = re.compile("(?!\n)[\\s\\x00-\\x1f\\x7f-\\x9f]")


@pytest.mark.parametrize("options", [[], ["--protect"], ["--language", "fr"]])
def test_every_character_of_moses(options):
    """Tokenization and its way back change spaces only; whitespace and control characters become spaces or
    nothing."""
    text = "".join(f"a{c}b {c} 1{c}2\n" for c in all_characters())
    coded = norma("tokenize", *options, stdin=text.encode())[1]
    language = options if "--language" in options else []
    back = norma("detokenize", *language, stdin=coded)[1].decode()
    kept, found = SPACES.sub("", text), SPACES.sub("", back)
    if kept != found:
        bad = [pair for pair in zip(kept.split("\n"), found.split("\n")) if pair[0] != pair[1]]
        pytest.fail(f"{len(bad)} lines: {ascii(bad[:5])}")


def test_user_symbols_in_tokenized_text(tmp_path):
    """https://github.com/rsennrich/subword-nmt/pull/85: glossaries, also within words of tokenized text."""
    (tmp_path / "t").write_text("wor d wor d word\n" * 9)
    assert norma("prepare", "--format", "text", "--train", tmp_path / "t", "--valid", tmp_path / "t",
                 "--tokenizer", "none", "--bpe-merges", "4", "--user-symbols", "<num>", "--output",
                 tmp_path / "d")[0] == 0
    results = [norma("subword", "--like", tmp_path / "d", "--format", form,
                     stdin=b"word<num>word\n<num> word<num>\n")[1] for form in ("raw", "tokenized")]
    assert results[0] == results[1] and results[0].split().count(b"<num>") == 3, results


def test_manual_on_a_terminal():
    """On a terminal the page is readable; in a pipe it is roff, for man."""
    primary, terminal = pty.openpty()
    run = subprocess.Popen([NORMA, "translate", "--manual"], stdout=terminal, stderr=subprocess.PIPE)
    os.close(terminal)
    page = b""
    try:
        while block := os.read(primary, 65536):
            page += block
    except OSError:  # the end of a terminal
        pass
    assert run.wait(60) == 0 and b"usage: norma translate" in page and b"length_penalty" in page
    assert b".SH" not in page and b"\\-" not in page
    assert b".SH OPTIONS" in norma("translate", "--manual")[1]
