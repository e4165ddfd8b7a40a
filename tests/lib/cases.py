"""Cases of tests/reference/cases: NAME.test holds statements, NAME.result what the reference answered to each.

A statement ends with `;` at the end of a line. A line that begins with `-- ` says something about the next statement:

    -- differs: REASON      our answer is meant to be another one; docs/sql.md lists it with both answers
    -- open: REASON         our answer is wrong for now
    $FILES                  the directory whose files statements may write and read (secure_file_priv); it is empty when the cases of a file begin
    -- session: NAME        from here on another connection; `NAME as USER`: of this user, who has no password, outside of any database

Rows are compared in their order where the statement says ORDER BY or begins with SHOW or CALL. A statement that is marked and answered as by the reference fails the run: the mark goes. Of errors and warnings the numbers count, not the
words; of warnings each number once.
"""

import pathlib
import re
import time
import unicodedata

from . import answers
from .harness import ROOT, Failure, check

CASES = ROOT / "tests" / "reference" / "cases"
DOCS = ROOT / "docs" / "sql.md"
BEGIN = "<!-- differences: written by tests/reference/run.py --docs -->"
END = "<!-- end of differences -->"


# Warnings that Apus does not give, on purpose: words of MySQL about its own future, and about names.
NOT_GIVEN = {
    "1287": "a syntax that MySQL will drop",
    "1681": "a syntax that MySQL will drop",
    "3778": "a character set that MySQL will drop",
    "3135": "a sql_mode that MySQL will drop",
    "4095": "a delimiter in a date that MySQL will drop",
    "4096": "a space in a date that MySQL will drop",
    "1052": "an alias that is also a column",
}


class Statement:
    def __init__(self, text, mark, reason, session, line):
        self.text, self.mark, self.reason, self.session, self.line = text, mark, reason, session, line
        self.wanted = self.found = None


def parse(text):
    statements, lines, session = [], [], "first"
    mark = reason = None
    start = 0
    for number, line in enumerate(text.splitlines()):
        if not lines and (not line.strip() or line.startswith("--") or line.startswith("#")):
            said = re.match(r"-- (differs|open|session): (.*)", line)
            if said and said[1] == "session":
                session = said[2].strip()
            elif said:
                mark, reason = said[1], said[2].strip()
            continue
        if not lines:
            start = number
        lines.append(line.rstrip())
        if lines[-1].endswith(";"):
            statements.append(Statement("\n".join(lines)[:-1], mark, reason, session, start))
            lines, mark, reason = [], None, None
    check(not lines, f"no ; ends {lines}")
    return statements


def read(path):
    """The statements of a file with what was recorded."""
    statements = parse(path.read_text())
    recorded = path.with_suffix(".result")
    check(recorded.exists(), f"{path.stem} has no recorded answers: tests/reference/run.py --record {path.stem}")
    parts = re.split(r"^> ", recorded.read_text(), flags=re.M)[1:]
    check(len(parts) == len(statements), f"{path.stem} has changed: tests/reference/run.py --record {path.stem}")
    for statement, part in zip(statements, parts):
        head = statement.text.replace("\n", "\n>. ")
        check(part.startswith(head + "\n"), f"{path.stem} has changed: tests/reference/run.py --record {path.stem}")
        statement.wanted = part[len(head) + 1:].splitlines()
    return statements


def execute(path, statements, **where):
    """What a server answers to each, in a database of the file's own."""
    database = f"r_{path.stem}"
    first = answers.connect(**where)
    first.query(f"DROP DATABASE IF EXISTS {database}")
    first.query(f"CREATE DATABASE {database} COLLATE utf8mb4_general_ci")
    sessions = {}
    answers.clear_files(first)
    try:
        for statement in statements:
            if statement.session not in sessions:
                sessions[statement.session] = connected(statement.session, database, **where)
            try:
                yield statement, answers.ask(sessions[statement.session], statement.text)
            except Exception as error:
                yield statement, [f"! the connection: {error!r}"]
                sessions[statement.session] = connected(statement.session, database, **where)
    finally:
        for connection in sessions.values():
            try:
                connection.close()
            except Exception:
                pass
        first.query(f"DROP DATABASE IF EXISTS {database}")
        first.close()


def connected(session, database, **where):
    """A connection as a case names it."""
    _, _, user = session.partition(" as ")
    return answers.connect(user=user, **where) if user else answers.connect(database, **where)


def record(path, **where):
    statements = parse(path.read_text())
    with open(path.with_suffix(".result"), "w") as out:
        for statement, lines in execute(path, statements, **where):
            out.write("> " + statement.text.replace("\n", "\n>. ") + "\n" + "".join(line + "\n" for line in lines))
    return len(statements)


def essence(text, lines):
    """What of an answer counts."""
    lines = [re.sub(r"^([!] \d+ \w+|[WNE] \d+) .*", r"\1", line) for line in lines]
    left_out = [line for line in lines if line[2:] in NOT_GIVEN]
    lines = [re.sub(r"Warnings: (\d+)", lambda n: f"Warnings: {int(n[1]) - len(left_out)}", line) if line[0] == "+" else line for line in lines]
    lines = [line for line in lines if line not in left_out]
    # How often a value is converted, and so warned of, is up to an optimizer.
    lines = [line for i, line in enumerate(lines) if not (re.match(r"[WNE] \d", line) and line in lines[:i])]
    if text.lower().startswith("call"):
        return lines
    rows = [line for line in lines if line.startswith("| ")]
    if not re.search(r"\border\s+by\b", text, re.I) and not text.lower().startswith("show"):
        rows.sort()
    return [line for line in lines if not line.startswith("| ")] + rows


def same(text, wanted, found):
    return essence(text, wanted) == essence(text, found)


def as_numbers(line):
    """A row without the zeros behind the points of its decimals, and -0."""
    line = re.sub(r"-(?=0+(\.0*)?(?= |$))", "", line)
    return re.sub(r"(\.\d*?)0+(?= |$)", r"\1", line).replace(". ", " ").rstrip(".")


def without_warnings(lines):
    return [re.sub(r"Warnings: \d+", "", line) for line in lines if line[0] in "=|+"]


# What MySQL checks of a statement before it is known which parts of it are reached.
CHECKED_BEFORE = re.compile(r"! 1525 |! 1292 \w+ (Incorrect \w+ value: .* for column|Truncated incorrect (date|datetime|time) value)")
PARTS = re.compile(r"\b(AND|OR|XOR|IF|IFNULL|COALESCE|CASE|WHERE|JOIN|LIMIT)\b")
# Conditions of which an optimizer chooses which parts it asks of which rows.
SEVERAL = re.compile(r"\b(AND|OR|XOR|JOIN|LIMIT|SELECT)\b")
SETS = re.compile(r"\b(UNION|EXCEPT|INTERSECT)\b")
# Errors that values of a row are.
OF_A_ROW = re.compile(r"! (1062|1264|1265|1292|1366|1406|1690) ")


def base_letters(line):
    """Without case, accents and spaces at the ends of values, as utf8mb4_general_ci compares."""
    letters = "".join(c for c in unicodedata.normalize("NFD", line.casefold()) if not unicodedata.combining(c))
    return " | ".join(cell.rstrip() for cell in letters.split(" | "))


def explanation(text, wanted, found):
    """Why two answers to a generated statement may differ; None where they may not."""
    a, b = essence(text, wanted), essence(text, found)
    if a[0][0] == b[0][0] and a[0][0] in "=+":
        if without_warnings(a) == without_warnings(b):
            return "other warnings"
        if a[0][0] == "=" and without_warnings(a)[1:] == without_warnings(b)[1:]:
            return "another type"
        if re.search(r"\b(IF|CASE)\b", text) and [as_numbers(line) for line in a[1:]] == [as_numbers(line) for line in b[1:]]:
            return "zeros at the end of a decimal that IF or CASE has chosen"
        numbers = [sorted(as_numbers(line) for line in without_warnings(lines)[1:]) for lines in (a, b)]
        if SETS.search(text) and numbers[0] == numbers[1]:
            return "digits behind the points of numbers of several types in a set"
        if numbers[0] == numbers[1] and "-0" in "".join(a):
            return "a sum of doubles that is -0"
    if re.search(r"(IFNULL|COALESCE)\((\w+), \2\).* (UNION|EXCEPT|INTERSECT) |(UNION|EXCEPT|INTERSECT) .*(IFNULL|COALESCE)\((\w+), \6\)", text) and " DATETIME" in wanted[0]:
        return "a time that IFNULL has chosen goes into a set of dates by its text in MySQL"
    if re.search(r"\b(MIN|MAX)\(", text) and [base_letters(line) for line in a] == [base_letters(line) for line in b]:
        return "which of several equal texts MIN or MAX takes"
    if any(re.search(r"Truncated incorrect time value: '\d{4}-\d\d-\d\d'", line) for line in wanted):
        return "a date in a list of times, which MySQL reads as a time"
    if re.search(r"\bIN \(SELECT (\w+, )?(DATE|TIMESTAMP)'|(DATE|TIMESTAMP)'[^']*'\)? (NOT )?IN \(SELECT", text) and a[0][0] == b[0][0] != "!":
        return "a constant moment beside a subquery of times, which MySQL reads as a time where its plan compares with the column"
    if re.search(r"CONCAT\(CAST\(\w+'[^']*' AS CHAR\), ", text):
        return "the text of a constant that MySQL's CONCAT overwrites from the second row on"
    if re.search(r"\+ INTERVAL .* AS SIGNED", text) and any(re.search(r"\b\d{12}60\b", line) for line in wanted):
        return "a number of a moment with 60 seconds, which MySQL rounds no further"
    if wanted[0].startswith("+") and found[0].startswith("! 1406 ") and "DOUBLE" in text:
        return "a double of which MySQL stores as many digits as a text column has room for"
    if OF_A_ROW.match(wanted[0]) and OF_A_ROW.match(found[0]) and SEVERAL.search(text):
        return "which of several errors comes first"
    one_fails = {wanted[0][0], found[0][0]} == {"!", "+"}
    if one_fails and re.search(r"! 1292 \w+ Truncated incorrect (DOUBLE|DECIMAL|INTEGER|datetime|date|time) ", wanted[0] + found[0]):
        if SEVERAL.search(text) or found[0].startswith("+ affected=0 "):
            return "what is no number or moment in a part of a condition that only one of both has asked"
    if CHECKED_BEFORE.match(wanted[0]) and b[0][0] != "!" and PARTS.search(text):
        return "a comparison with what is no moment, where no row needs it"
    if wanted[0].startswith("! 1292") and b[0][0] == "+" and text.endswith("LIMIT 1"):
        return "what is no number in a row behind the last one of LIMIT"
    return None


def compare(path, **where):
    """(statements, those whose answer is another one than it should be as text, statements per second)."""
    statements = read(path)
    wrong, start = [], time.monotonic()
    for statement, lines in execute(path, statements, **where):
        statement.found = lines
        equal = same(statement.text, statement.wanted, lines)
        statement.equal = equal
        if statement.mark and equal:
            wrong.append(f"{path.stem}:{statement.line + 1}: no longer different, take off its mark: {statement.text}")
        elif not statement.mark and not equal:
            shown = "\n".join(["  wanted " + line for line in statement.wanted[:12]] + ["  found  " + line for line in lines[:12]])
            wrong.append(f"{path.stem}:{statement.line + 1}: {statement.text}\n{shown}")
    return statements, wrong, len(statements) / (time.monotonic() - start)


def kind_of_difference(statement):
    """What is wrong with an answer, in a word or two."""
    return kind_of_answers(essence(statement.text, statement.wanted), essence(statement.text, statement.found))


def kind_of_answers(wanted, found):
    if found[0].startswith("!"):
        refused = found[0].split()[1] in ("1235", "1064", "1305")
        return "refused" if refused else "another error" if wanted[0].startswith("!") else "an error"
    if wanted[0].startswith("!"):
        return "no error"
    if [line for line in wanted if line[0] == "|"] != [line for line in found if line[0] == "|"]:
        return "another value"
    if wanted[0] != found[0]:
        return "another count" if wanted[0].startswith("+") else "another type"
    return "other warnings"


def mark(path, statements):
    """Writes `-- open: ...` before each statement that differs, and takes off the marks of those that do not."""
    lines = path.read_text().splitlines()
    for statement in reversed(statements):
        if statement.mark and statement.equal:
            at = next(i for i in range(statement.line - 1, -1, -1) if lines[i].startswith(f"-- {statement.mark}: "))
            del lines[at]
        elif not statement.mark and not statement.equal:
            lines.insert(statement.line, f"-- open: {kind_of_difference(statement)}")
    path.write_text("\n".join(lines) + "\n")


def short(lines):
    shown = [line[2:] for line in lines if line.startswith("| ")] or lines[:1]
    warned = [line for line in lines if line[:2] in ("W ", "E ", "N ") and line[2:3].isdigit()]
    text = "; ".join(shown + [" ".join(w.split()[:2]) for w in warned])
    return (text[:90] + "..." if len(text) > 90 else text).replace("|", "\\|")


def table(files):
    """The lines of docs/sql.md about marked statements, of {path: statements that were compared}."""
    lines = [BEGIN, "", "| Reason | Statement | MySQL | Apus |", "|---|---|---|---|"]
    seen = set()
    for path, statements in files.items():
        for s in statements:
            if s.mark == "differs" and s.reason not in seen:
                seen.add(s.reason)
                text = " ".join(s.text.split()).replace("|", "\\|")
                lines.append(f"| {s.reason} | `{text}` | {short(s.wanted)} | {short(s.found)} |")
    lines.append("| How often a warning is given is up to the optimizer, which decides how often a value is converted | | | |")
    for number, reason in NOT_GIVEN.items():
        lines.append(f"| Warning {number}, {reason}, is not given | | | |")
    open_ones = [s for statements in files.values() for s in statements if s.mark == "open"]
    count = sum(len(statements) for statements in files.values())
    lines += ["", f"Of {count} recorded statements {len(open_ones)} have another answer that is not meant:", ""]
    for reason in sorted({s.reason for s in open_ones}):
        lines.append(f"- {reason} ({sum(s.reason == reason for s in open_ones)})")
    return lines + ["", END]


def documented():
    text = DOCS.read_text()
    check(BEGIN in text and END in text, "docs/sql.md has no place for the differences")
    return text[text.index(BEGIN):text.index(END) + len(END)].splitlines()


def document(lines):
    text = DOCS.read_text()
    DOCS.write_text(text[:text.index(BEGIN)] + "\n".join(lines) + text[text.index(END) + len(END):])


def paths(names=()):
    found = sorted(CASES.glob("*.test"))
    unknown = set(names) - {p.stem for p in found}
    if unknown:
        raise Failure(f"no such cases: {', '.join(sorted(unknown))}")
    return [p for p in found if not names or p.stem in names]
