#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The English of the tree, measured: headless relative clauses, and the length of sentences.

    prose.py                    a table: every document, every directory's comments
    prose.py FILE...            each finding, with its sentence
    prose.py --draw N SEED      N sentences at random of all documents and comments, for a reader who sees
                                nothing else: can he say the same in other words?

A clause is headless where no noun comes before its relative word: "what was flushed is kept", "whoever
mounts the disk", "those that fail".  A question may begin with what or who.
"""
import io
import random
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]

# Of a file or a directory: headless clauses for each 100 words; words of one sentence.
HEADLESS = 0.4
SENTENCE = 40

CODE = " CODE "
# Before "who", these show that no noun comes before it; after "those", that none follows.
NO_NOUN = (r"and|or|but|nor|than|as|if|that|by|to|for|of|with|from|in|on|at|is|are|was|were|be|not|only|all|"
           r"says?|said|knows?|asks?|tells?|told|shows?|sees?|names?|know|see")
AFTER_THOSE = (r"who|whose|that|which|of|in|on|at|to|with|without|from|for|below|above|are|is|was|were|have|had|"
               r"has|do|does|did|not|and|or|can|may|must|will|it|he|they|we|one|named|given|listed|made|left")

HEADLESS_CLAUSE = re.compile(
    r"\b(?:what|whatever|whoever|whomever|whichever)\b"
    rf"|(?:^|[.,:;(]\s*|\b(?:{NO_NOUN})\s+)(?:who|whom)\b"
    rf"|\bthose\b(?=\s+(?:{AFTER_THOSE})\b|\s*(?:[.,:;)]|CODE|$))", re.I)
QUESTION = re.compile(r"[^.:;!?]*\?")


@dataclass
class Prose:
    """Sentences, each with the place where its paragraph begins: a line's number, of several files with the name."""
    sentences: list

    @property
    def words(self) -> int:
        return sum(count(sentence) for _, sentence in self.sentences)

    def headless(self) -> list:
        return [(line, sentence) for line, sentence in self.sentences
                for _ in HEADLESS_CLAUSE.findall(QUESTION.sub("", sentence))]

    def long(self) -> list:
        return [(line, sentence) for line, sentence in self.sentences if count(sentence) > SENTENCE]

    def too_headless(self) -> bool:
        return len(self.headless()) > max(1, self.words * HEADLESS / 100)


def count(sentence: str) -> int:
    return len(re.findall(r"[\w'/-]*[A-Za-z0-9][\w'/-]*", sentence))


def split(line: int, text: str):
    """A paragraph's sentences.  A colon or semicolon ends none; a table's cell is a paragraph."""
    text = " ".join(text.split())
    # Abbreviations and versions end no sentence.
    text = re.sub(r"\b(e\.g|i\.e|etc|vs|cf|Dr|No)\.", r"\1", text)
    for sentence in re.split(r"(?<=[.!?])[)\"']?\s+(?=[\"'(]?[A-Z0-9])", text):
        if sentence.strip():
            yield line, sentence.strip()


def paragraphs(lines):
    """Joins lines up to an empty one; a list's item begins a paragraph."""
    first, text = 0, []
    for number, line in lines:
        item = re.match(r"\s*(?:[-*+]|\(?\d+[.)]|[a-z]\))\s+", line)
        if text and (not line.strip() or item):
            yield first, " ".join(text)
            text = []
        if line.strip():
            if not text:
                first = number
            text.append(line[item.end():] if item else line)
    if text:
        yield first, " ".join(text)


def without_markup(text: str) -> str:
    text = re.sub(r"``[^`]*``|`[^`]*`", CODE, text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?<!\w)[*_]{1,2}([^*_\s][^*_]*)[*_]{1,2}(?!\w)", r"\1", text)
    return text


def markdown(source: str):
    fence, item, lines = False, False, []
    source = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
    for number, line in enumerate(source.splitlines(), 1):
        # Within a list's item an indented line goes on with it; elsewhere it is code.
        item = bool(re.match(r"\s*(?:[-*+]|\d+\.)\s", line)) or (item and line.startswith(" "))
        if line.lstrip().startswith("```"):
            fence = not fence
            lines.append((number, ""))
        elif fence or (not item and line.startswith(("    ", "\t"))):
            lines.append((number, ""))
        elif line.startswith("|"):
            lines.append((number, ""))
            for cell in line.strip("|").split("|"):
                lines += [(number, cell), (number, "")]
        elif line.startswith("#"):
            lines += [(number, ""), (number, line.lstrip("# ")), (number, "")]
        else:
            lines.append((number, line))
    return lines


def columns(ruler: str) -> list:
    """Of a table's line of '=': where each column begins and ends; the last has no end."""
    spans = [list(match.span()) for match in re.finditer(r"=+", ruler)]
    spans[-1][1] = None
    return spans


def restructured(source: str):
    """Literal blocks, directives and comments are left out; of simple tables each cell is a paragraph."""
    lines, literal, table, cells = [], None, None, []

    def end_row():
        for number, cell in cells:
            lines.extend([(number, ""), (number, cell), (number, "")])
        cells.clear()

    for number, line in enumerate(source.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is not None:
            lines.append((number, ""))
        elif re.fullmatch(r"=+(\s+=+)+", line.strip()):
            end_row()
            spans = columns(line)
            # The third ruler, or one before an empty line, ends the table: rows go on till then.
            table = spans if table is None or spans == table else None
        elif table is not None and not line.strip():
            end_row()
            table = None
        elif table is not None:
            if line[:table[0][1]].strip():
                end_row()
                cells.extend((number, line[a:b].strip()) for a, b in table)
            elif cells:
                for k, (a, b) in enumerate(table):
                    cells[k] = (cells[k][0], cells[k][1] + " " + line[a:b].strip())
        elif re.match(r"\s*\.\. ", line):
            literal = indent
            lines.append((number, ""))
        elif re.fullmatch(r"\s*([=\-~^\"*+#])\1{2,}\s*", line):
            lines.append((number, ""))
        else:
            if line.rstrip().endswith("::"):
                literal = indent
            lines.append((number, line))
    end_row()
    return lines


def scdoc(source: str):
    """Tables begin a cell with |, [ or ]; a line with a tab is indented text, not code."""
    fence, lines = False, []
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            fence = not fence
        if fence or line.startswith(("```", ";", "@")):
            lines.append((number, ""))
        elif re.match(r"[|\[\]]", line) or line.startswith(":"):
            lines += [(number, ""), (number, re.sub(r"^[|\[\]]?\s*[:\[\]<>-]?[-<>]?\s*", "", line)), (number, "")]
        elif line.startswith("#"):
            lines += [(number, ""), (number, line.lstrip("# ")), (number, "")]
        else:
            lines.append((number, re.sub(r"\+\+$", "", line.strip())))
    return lines


def c_comments(source: str):
    lines = []
    for match in re.finditer(r"/\*(.*?)\*/|//([^\n]*)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", source, re.S):
        body = match[1] if match[1] is not None else match[2]
        if body is None or "SPDX-" in body:
            continue
        number = source.count("\n", 0, match.start()) + 1
        for k, line in enumerate(body.splitlines()):
            # A drawing is no sentence.
            line = re.sub(r"^\s*\*?", "", line)
            lines.append((number + k, "" if re.search(r"[|+]--|-->|<--|\t\S+\t", line) else line))
        lines.append((number, ""))
    return lines


def python_comments(source: str):
    lines, last = [], None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        number = token.start[0]
        if token.type == tokenize.COMMENT and "SPDX-" not in token.string and not token.string.startswith("#!"):
            if last != number - 1:
                lines.append((number, ""))
            lines.append((number, token.string.lstrip("# ")))
            last = number
        elif token.type == tokenize.STRING and re.match(r"[rbf]*\"\"\"", token.string):
            lines.append((number, ""))
            for k, line in enumerate(token.string.strip("\"rf").splitlines()):
                lines.append((number + k, "" if line.startswith("    ") and "  " in line.strip() else line))
            lines.append((number, ""))
    return lines


def shell_comments(source: str):
    lines = []
    for number, line in enumerate(source.splitlines(), 1):
        comment = re.match(r"\s*#(?!!)\s?(.*)", line)
        if comment and "SPDX-" not in line:
            lines.append((number, comment[1]))
        else:
            lines.append((number, ""))
    return lines


def strings(source: str):
    """The strings of a table of options and commands."""
    lines = []
    source = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
    for match in re.finditer(r"\"(?:\\.|[^\"\\])*\"(?:\s*\"(?:\\.|[^\"\\])*\")*", source):
        number = source.count("\n", 0, match.start()) + 1
        text = "".join(re.findall(r"\"((?:\\.|[^\"\\])*)\"", match[0]))
        if " " in text:
            for part in text.replace("\\\"", "\"").split("\\n"):
                lines += [(number, part), (number, "")]
    return lines


READERS = {".md": markdown, ".rst": restructured, ".scd": scdoc, ".in": scdoc, ".c": c_comments, ".h": c_comments,
           ".cc": c_comments, ".py": python_comments, ".sh": shell_comments, ".def": strings}


def read(path: Path) -> Prose:
    source = path.read_text()
    reader = READERS.get(path.suffix)
    if reader is None:
        reader = python_comments if source.startswith("#!/usr/bin/python3") else shell_comments
    return Prose([sentence for line, text in paragraphs(reader(source))
                  for sentence in split(line, without_markup(text))])


def documents() -> list:
    """What users and contributors read, by how many do."""
    found = [TOP / "README.md", TOP / "userspace/hybridctl/commands.def"]
    for pattern in ("docs/*.md", "examples/*.md", "man/*.scd*", "CONTRIBUTING.md", "dm-hybrid/Documentation/*.rst",
                    "bench/*.md", "contrib/*/*.md", "tests/[a-z]*/README.md", "tests/kernel/*/README.md"):
        found += sorted(TOP.glob(pattern))
    # Half of style.md is how not to write.
    return [path for path in dict.fromkeys(found) if path.exists() and path.name != "style.md"]


def commented() -> list:
    """Directories by their comments."""
    return [TOP / name for name in ("dm-hybrid", "dm-hybrid/core", "dm-hybrid/policy", "userspace/lib",
                                    "userspace/hybridctl", "userspace/check", "userspace/replay", "tests/modules",
                                    "tests/kernel/pauses", "tests/sim", "tests/unit", "tests/fuzz", "tests/replay",
                                    "tests/check", "bench")]


def comments_of(directory: Path) -> Prose:
    return Prose([(f"{path.name}:{line}", sentence) for path in sorted(directory.glob("*.[ch]"))
                  for line, sentence in read(path).sentences])


def row(name: str, prose: Prose) -> str:
    rate = 100 * len(prose.headless()) / max(prose.words, 1)
    return f"{name:45} {prose.words:6} {rate:8.2f} {len(prose.long()):5}"


def draw(number: int, seed: int) -> None:
    every = [(path.relative_to(TOP), line, sentence) for path in documents() for line, sentence in read(path).sentences]
    for directory in commented():
        for path in sorted(directory.glob("*.[ch]")):
            every += [(path.relative_to(TOP), line, sentence) for line, sentence in read(path).sentences]
    for path, line, sentence in random.Random(seed).sample([s for s in every if count(s[2]) > 6], number):
        print(f"{path}:{line}: {sentence}")


def main() -> None:
    if sys.argv[1:2] == ["--draw"]:
        draw(int(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) > 1:
        for name in sys.argv[1:]:
            path = Path(name).resolve()
            prose = comments_of(path) if path.is_dir() else read(path)
            for line, sentence in prose.headless():
                print(f"{name}:{line}: headless: {sentence}")
            for line, sentence in prose.long():
                print(f"{name}:{line}: {count(sentence)} words: {sentence}")
            print(row(name, prose))
    else:
        print(f"{'':45} {'words':>6} {'headless':>8} {'long':>5}")
        for path in documents():
            print(row(str(path.relative_to(TOP)), read(path)))
        for directory in commented():
            print(row(f"{directory.relative_to(TOP)}/*.[ch]", comments_of(directory)))


if __name__ == "__main__":
    main()
