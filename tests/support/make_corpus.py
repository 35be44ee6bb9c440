#!/usr/bin/env python3
"""Generates small corpora that resemble real ones, identical on every machine:

    make_corpus.py FOLDER

    FOLDER/{train,valid,test}.{de,en}   parallel text, tokenized: languages with own words, endings and order
    FOLDER/{train,valid,test}.txt       plain text with empty lines, N for numbers and <unk>
    FOLDER/{train,test}.tsv             label, tab, text
    FOLDER/eng.{train,testa,testb}      columns of CoNLL-2003: token, part of speech, chunk, tag (IOB1)
    FOLDER/{train,dev,test}.char.bmes   a character and its tag (BMES) a line
    FOLDER/{words.100d,chars.50d,bigrams.50d}.txt   word vectors

Word frequencies follow Zipf's law. Validation and test differ from training: they contain words,
characters, subwords of the other language and entity types that training lacks. There are empty lines,
lines of one token, of usual length and very long ones; one label occurs once in training."""
import math
import os
import re
import string
import sys

# ---- random numbers: a linear congruential generator, independent of the version of Python ----

state = 20201


def uniform():  # 0 .. 1
    global state
    state = (state * 1103515245 + 12345) % 2147483648
    return (state >> 8) / 8388608


def integer(n):
    return int(uniform() * n)


def chance(p):
    return uniform() < p


def choose(items):
    return items[integer(len(items))]


def zipf(n):  # 0 .. n - 1, the first ones most often
    return int(math.exp(uniform() * math.log(n + 1)) - 1e-9) - 1


def write(name, lines):
    with open(os.path.join(sys.argv[1], name), "w", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)


# ---- vocabularies: concept i is the i-th word of each language ----

LANGUAGES = ("de", "en")
ONSET = {"de": "b d f g h k l m n r s t w z sch st tr".split(),
         "en": "b c d f g h j l m n p r s t th v wh".split()}
VOWEL = {"de": "a e i o u ä ö ü ei au".split(), "en": "a e i o u ea oo y".split()}
CODA = {"de": ["", *"n r l t cht ss".split()], "en": ["", *"n r l t ck sh".split()]}
ENDING = {"de": {"noun": "en", "verb": "te"}, "en": {"noun": "s", "verb": "ed"}}
ARTICLE = {"de": "der die das ein".split(), "en": "the the this a".split()}
CONCEPTS, SEEN = 60, 42  # of each part of speech; those after SEEN are not in training
# Names are the same in both languages, but training writes them differently.
NAMES = [("Zürich", "Zurich"), ("München", "Munich"), ("Łódź", "Lodz"), ("O'Neill",) * 2, ("Mary-Ann",) * 2]
UNSEEN_NAMES = ["Søren", "東京", "Ålesund", "naïve", "😀"]
words = {language: {"noun": [], "verb": [], "adjective": []} for language in LANGUAGES}


def make_words(language):
    taken = set()
    for part, list_of_part in words[language].items():
        while len(list_of_part) < CONCEPTS:
            syllables = range(1 + integer(2))
            word = "".join(choose(of[language]) for _ in syllables for of in (ONSET, VOWEL, CODA))
            if word.lower() not in taken:
                taken.add(word.lower())
                german_noun = language == "de" and part == "noun"
                list_of_part.append(word.capitalize() if german_noun else word)


def concept(training):
    return zipf(SEEN if training else CONCEPTS)


def phrase(training):
    """A noun with its article in both languages: adjectives precede German nouns and follow English ones."""
    noun, plural, article, adjective = concept(training), chance(0.3), integer(4), chance(0.4)
    which = concept(training) if adjective else 0
    both = {}
    for language in LANGUAGES:
        word = words[language]["noun"][noun] + (ENDING[language]["noun"] if plural else "")
        quality = [words[language]["adjective"][which]] if adjective else []
        order = [*quality, word] if language == "de" else [word, *quality]
        both[language] = " ".join([ARTICLE[language][article], *order])
    return both


def clause(training):
    """In both languages: German verbs are at the end."""
    subject, object_ = phrase(training), phrase(training)
    verb, past = concept(training), chance(0.5)
    de, en = (words[x]["verb"][verb] + (ENDING[x]["verb"] if past else "") for x in LANGUAGES)
    return f"{subject['de']} {object_['de']} {de}", f"{subject['en']} {en} {object_['en']}"


def sentence(training):  # (German, English), tokenized
    kind = uniform()
    if kind < 0.04:
        return "ja .", "yes ."
    clauses = [clause(training) for _ in range(12 if kind > 0.97 else 1 + integer(2))]
    if chance(0.15):
        name = choose(NAMES)
        clauses.append((f"in {name[0]}", f"in {name[training]}"))  # untranslated outside training
    if not training and chance(0.1):
        name = choose(UNSEEN_NAMES)
        clauses.append((f"von {name}", f"of {name}"))
    if chance(0.1):
        number = f"{integer(2000)}" + (f".{integer(100)}" if chance(0.5) else "")
        clauses.append((f"mit {number}", f"with {number}"))
    de, en = zip(*clauses)
    return " und ".join(de) + " .", " , and ".join(en) + " ."


def make_texts(split, n):
    """Parallel and plain text."""
    training, rows = split == "train", []
    for i in range(1, n + 1):
        de, en = sentence(training)
        if i % 37 == 12:
            de = en = ""
        if training and i % 53 == 7:
            en = ""
        text = re.sub(r"\d+(\.\d+)?", "N", en)
        rows.append((de, en, re.sub(r"\b[A-Z]\S+", "<unk>", text) if training else text))
    for name, lines in zip(("de", "en", "txt"), zip(*rows)):
        write(f"{split}.{name}", lines)


def make_labeled(split, n):
    training, lines = split == "train", []
    for i in range(1, n + 1):
        label = 3 if i == 11 and training else integer(2) + 1
        adjective = words["en"]["adjective"][label]
        text = " ".join([adjective, *(sentence(training)[1] for _ in range(1 + integer(3)))])
        if i == 17:
            text = " ".join([text] * 40)  # longer than any maximum length
        lines.append(f"{label}\t" + ("yes" if i == 5 else text))
    write(f"{split}.tsv", lines)


# ---- columns with entities ----

TYPES = {"train": ["PER", "LOC"], "dev": ["PER", "LOC", "MISC"], "test": ["PER", "ORG", "LOC"]}
# Entities as lists of tokens; the last ones occur only outside training.
ENTITIES = [["Müller"], ["Anna", "Maria"], ["Berlin"], ["New", "York"], ["Jean-Luc"], ["Søren"], ["東京"],
            ["U.N.", "2024"]]


def tagged_tokens(split):  # (token, type or "", starts entity), ...
    for word in sentence(split == "train")[1].split():
        if chance(0.12):
            kind = choose(TYPES[split])
            entity = choose(ENTITIES[:5] if split == "train" else ENTITIES)
            yield from ((token, kind, t == 0) for t, token in enumerate(entity))
        yield word, "", False


def make_tagged(split, columns_name, n):
    columns, characters = ["-DOCSTART- -X- O O", ""], []
    for i in range(1, n + 1):
        before = ""
        tokens = [("Yes", "", False)] if i == 9 else list(tagged_tokens(split))
        for (word, kind, first), (_, next_kind, next_first) in zip(tokens, [*tokens[1:], ("", "", False)]):
            mark = ("B-" if first and before == kind else "I-") + kind if kind else "O"  # IOB1
            columns.append(f"{word} NN I-NP {mark}")
            before, last = kind, not next_kind or next_first
            for c, character in enumerate(word):
                begins, ends = first and c == 0, last and c == len(word) - 1
                place = "S-" if begins and ends else "B-" if begins else "E-" if ends else "M-"
                characters.append(f"{character} {place + kind if kind else 'O'}")
        columns.append("")
        characters.append("")
    write(columns_name, columns)
    write(f"{split}.char.bmes", characters)


def make_vectors(name, width, items):  # word vectors, for some of the words only
    write(name, (" ".join([item, *(f"{uniform() - 0.5:.4f}" for _ in range(width))]) for item in items))


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: make_corpus.py FOLDER")
    if not os.path.isdir(sys.argv[1]):
        os.mkdir(sys.argv[1])
    for language in LANGUAGES:
        make_words(language)
    for split, n in (("train", 160), ("valid", 24), ("test", 24)):
        make_texts(split, n)
    for split, n in (("train", 60), ("test", 20)):
        make_labeled(split, n)
    for split, name, n in (("train", "eng.train", 60), ("dev", "eng.testa", 16), ("test", "eng.testb", 16)):
        make_tagged(split, name, n)
    some = [word.lower() for word in words["en"]["noun"][:21]] + words["en"]["verb"][:11]
    make_vectors("words.100d.txt", 100, [*some, "the", "a", "of", ".", ","])
    make_vectors("chars.50d.txt", 50, string.ascii_lowercase)
    make_vectors("bigrams.50d.txt", 50, (a + b for a in string.ascii_lowercase for b in "aeiou"))


main()
