#!/usr/bin/env python3
"""MySQL's character sets: asks the reference for every character and writes what encoding_rs has otherwise, for crates/sql/src/wire/foreign.

    charsets.py                      the files anew (a minute)

It compares the reference with what `cargo run -p apus-sql --example encodings` says. A line of differences.txt begins with the name of the character set:

    - CODE[-CODE]         these bytes are no characters
    = CODE[-CODE] POINT   they are these code points, each one more than the one before
    > CODE[-CODE]         they are read only: their characters are written in another way
    < POINT CODE          is written so, though these bytes are read as something else

digests.txt has a line for each character set, for the unit test: how many sequences are read and the beginning of the SHA-256 of them with their code points, the
same of the code points that are written with their bytes. collations.txt has the names and numbers of all collations.
"""

import hashlib
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lib import answers  # noqa: E402
from lib.harness import ROOT, Scenario  # noqa: E402
from lib.mysql import MySql  # noqa: E402

FOLDER = ROOT / "crates/sql/src/wire/foreign"
LABELS = {
    "big5": "big5", "cp1250": "windows-1250", "cp1251": "windows-1251", "cp1256": "windows-1256", "cp1257": "windows-1257", "cp866": "ibm866", "cp932": "shift_jis",
    "eucjpms": "euc-jp", "euckr": "euc-kr", "gb18030": "gb18030", "gb2312": "gbk", "gbk": "gbk", "greek": "iso-8859-7", "hebrew": "iso-8859-8", "koi8r": "koi8-r",
    "koi8u": "koi8-u", "latin2": "iso-8859-2", "latin5": "windows-1254", "latin7": "iso-8859-13", "macroman": "macintosh", "sjis": "shift_jis", "tis620": "windows-874",
    "ujis": "euc-jp",
}
WIDE = {"big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"}


def rows(connection, statement):
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor.fetchall()


def read(connection, name):
    """Code points by what is read as them."""
    found = {}

    def ask(sequence, condition):
        text = f"CONVERT(CONVERT({sequence} USING {name}) USING utf32)"
        for code, point in rows(connection, f"SELECT HEX({sequence}), HEX({text}) FROM n WHERE {condition} AND LENGTH({text}) = 4"):
            if point != "0000003F" or code == "3F":
                found[int(code, 16)] = int(point, 16)

    ask("UNHEX(HEX(n))", "n < 256")
    if name in WIDE:
        alone = {byte for byte in found if byte >= 0x80}
        ask("UNHEX(HEX(n))", "n >= 0x8000")
        for code in [code for code in found if code > 0xFF and code >> 8 in alone]:
            del found[code]
    if name in ("ujis", "eucjpms"):
        ask("CONCAT(0x8F, UNHEX(HEX(n)))", "n >= 0x8000")
    for first in range(0x81, 0xFF) if name == "gb18030" else ():
        ask(f"CONCAT(0x{first:X}, UNHEX(HEX(0x30 + n DIV 1260)), UNHEX(HEX(0x81 + n DIV 10 % 126)), UNHEX(HEX(0x30 + n % 10)))", "n < 12600")
    return found


def written(connection, name):
    """What is written by code points."""
    found = {}
    # Beyond the first plane the reference takes some of tis620 for the characters with the same last 16 bits.
    for plane in range(1 if name == "tis620" else 17):
        character = f"CONVERT(UNHEX(LPAD(HEX(n + {plane << 16}), 8, '0')) USING utf32)"
        for point, code in rows(connection, f"SELECT n + {plane << 16}, HEX(CONVERT({character} USING {name})) FROM n"):
            if code and (code != "3F" or int(point) == 0x3F):
                found[int(point)] = int(code, 16)
    return found


def runs(codes, breaks, follows=lambda one, other: True):
    """First and last of the codes that stand beside each other: nothing of `breaks` is between them."""
    out = []
    every = sorted([(code, True) for code in codes] + [(code, False) for code in breaks if code not in codes])
    last = None
    for code, counts in every:
        if counts and last is not None and len(f"{last:X}") == len(f"{code:X}") and follows(last, code):
            out[-1][1] = code
        elif counts:
            out.append([code, code])
        last = code if counts else None
    return [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in out]


def differences(theirs, mine, writes):
    lines = ["- " + run for run in runs(set(mine) - set(theirs), set(theirs))]
    others = {code for code, point in theirs.items() if mine.get(code) != point}
    for run in runs(others, set(theirs), lambda one, other: other == one + 1 and theirs[other] == theirs[one] + 1):
        lines.append(f"= {run} {theirs[int(run.split('-')[0], 16)]:X}")
    silent = {code for code, point in theirs.items() if writes.get(point) != code}
    lines += ["> " + run for run in runs(silent, set(theirs))]
    lines += [f"< {point:X} {code:X}" for point, code in sorted(writes.items()) if theirs.get(code) != point]
    return lines


def digest(pairs):
    sha = hashlib.sha256()
    for one, other in sorted(pairs.items()):
        sha.update(one.to_bytes(4, "big") + other.to_bytes(4, "big"))
    return f"{len(pairs)} {sha.hexdigest()[:16]}"


def encodings():
    found = {}
    told = subprocess.run(["cargo", "run", "-q", "-p", "apus-sql", "--example", "encodings"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for line in told.stdout.splitlines():
        label, code, point = line.split()
        found.setdefault(label, {})[int(code, 16)] = int(point, 16)
    return found


def main():
    scenario = Scenario("charsets")
    mine = encodings()
    with scenario.cleanup:
        connection = answers.connect(unix_socket=str(scenario.cleanup.enter_context(MySql(scenario.directory / "m")).socket))
        for statement in ("CREATE DATABASE d", "USE d", "SET cte_max_recursion_depth = 65536, max_error_count = 0", "CREATE TABLE n (n INT PRIMARY KEY)"):
            rows(connection, statement)
        rows(connection, "INSERT INTO n WITH RECURSIVE a (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM a WHERE n < 65535) SELECT n FROM a")
        differ, digests = [], []
        for name, label in LABELS.items():
            theirs, writes = read(connection, name), written(connection, name)
            differ += [f"{name} {line}" for line in differences(theirs, mine[label], writes)]
            digests.append(f"{name} {digest(theirs)} {digest(writes)}")
            print(digests[-1], sum(line.startswith(name + " ") for line in differ), flush=True)
        (FOLDER / "differences.txt").write_text("\n".join(differ) + "\n")
        (FOLDER / "digests.txt").write_text("\n".join(digests) + "\n")
        names = ", ".join(f"'{name}'" for name in LABELS)
        known = rows(connection, f"SELECT c.character_set_name, collation_name, id FROM information_schema.collations c WHERE c.character_set_name IN ({names}) ORDER BY 1, c.is_default = '', 3")
        (FOLDER / "collations.txt").write_text("".join(f"{charset} {collation} {number}\n" for charset, collation, number in known))


if __name__ == "__main__":
    main()
