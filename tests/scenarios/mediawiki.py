"""MediaWiki as Debian's unstable ships it, on PHP's own web server: installed, edited, searched and brought up to date, while data nodes are killed.

A page is some hundred statements: its texts, sessions, caches and localised messages lie in the database, and its search in a FULLTEXT index. No page and
no call may fail, and MediaWiki may not have noted an error of its database, but that a transaction was rolled back by the death of its node. Where unstable has gone on to
another version, nothing is run.
"""

import html
import itertools
import re
import threading
import time

from lib import apps, mysql
from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, check_equal, scenario_main, wait_until
from lib.wiki import ADMIN, FOLDER, PACKAGES, PASSWORD, Database, Person, Wiki

# The packages take minutes to come where the network is slow.
LIMIT_SECONDS = (600, 900)
SIDE_BY_SIDE = True
# For so long pages are written and read after the last node is back.
SECONDS = 20 if FULL else 3
ROLLED_BACK = "1213"
# What 1.38 to 1.43 changed, undone: fields, an index and a table less, indexes more, narrower numbers, a search index of other letters without its key.
OLDER = """
ALTER TABLE user DROP user_is_temp;
DROP INDEX `primary` ON user_autocreate_serial;
ALTER TABLE user_autocreate_serial DROP uas_year, ADD PRIMARY KEY (uas_shard);
DROP TABLE loginnotify_seen_net;
CREATE INDEX iwl_prefix_from_title ON iwlinks (iwl_prefix, iwl_from, iwl_title);
ALTER TABLE recentchanges CHANGE rc_id rc_id INT UNSIGNED AUTO_INCREMENT NOT NULL;
DROP INDEX oi_timestamp ON oldimage;
ALTER TABLE image CHANGE img_size img_size INT UNSIGNED DEFAULT 0 NOT NULL;
ALTER TABLE searchindex DROP PRIMARY KEY, MODIFY si_title VARCHAR(255) NOT NULL DEFAULT '', ADD UNIQUE KEY si_page (si_page), CONVERT TO CHARACTER SET utf8mb3;
DELETE FROM updatelog WHERE ul_key LIKE 'searchindex%' OR ul_key LIKE '%bigint.sql' OR ul_key LIKE '%user_is_temp%' OR ul_key = 'PopulateUserIsTemp';
"""
CHANGED = ["user", "user_autocreate_serial", "iwlinks", "recentchanges", "oldimage", "image", "searchindex"]


def wait_for(found, wanted, what):
    """Some of what an edit brings is written after its answer."""
    wait_until(lambda: check_equal(found(), wanted, what) or True, 20, what)


def installs(wiki, port):
    wiki.install(port)
    check("MediaWiki has been installed." in Person(port).page("Main Page"), "its first page is not shown")
    check_equal(wiki.sql("SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = 'wiki' AND index_type = 'FULLTEXT'"), "2", "indexes of texts")
    check(int(wiki.sql("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'wiki'")) > 70, "tables are missing")


def accounts(port):
    """An account by the API, which logs in and out."""
    person, other = Person(port), Person(port)
    said = person.api("createaccount", kind="createaccount", username="Visitor", password=PASSWORD, retype=PASSWORD, email="v@example.org", createreturnurl=person.base)["createaccount"]
    check_equal(said["status"], "PASS", said)
    refused = other.api("clientlogin", kind="login", username="Visitor", password="not this one", loginreturnurl=other.base)["clientlogin"]
    check_equal(refused["status"], "FAIL", refused)
    other.log_in("Visitor")
    check_equal(other.query("userinfo", meta="userinfo")["name"], "Visitor", "who has logged in")
    check("Visitor" in other.page("Special:Preferences") and ADMIN in other.page("Special:ListUsers"), "the preferences and the users")
    other.api("logout", kind="csrf")
    check("anon" in other.query("userinfo", meta="userinfo"), "somebody is still logged in")


def history(author):
    """Edits, one of a section, one undone."""
    first = author.edit("Ælfred", "He met [[Guthrum]] in [[Wessex]].\n\n== Coins ==\nSilver\n\n[[Category:Kings]]", summary="a king", createonly="1")
    second = author.edit("Ælfred", "== Coins ==\nPennies – für immer ✈ 🪙", section="1", summary="no silver")
    third = author.edit("Ælfred", "nothing", summary="vandals")
    author.edit("Ælfred", undo=str(third))
    revisions = author.query("revisions", titles="Ælfred", prop="revisions", rvprop="ids|comment|user|content|size|sha1", rvslots="main", rvlimit="10")
    check_equal([revision["revid"] for revision in revisions[1:]], [third, second, first], "revisions")
    check_equal([revision["comment"] for revision in revisions[1:]], ["vandals", "no silver", "a king"], "their comments")
    check_equal(revisions[0]["sha1"], revisions[2]["sha1"], "what was undone")
    check("Pennies – für immer ✈ 🪙" in revisions[0]["slots"]["main"]["content"], revisions[0])
    shown = Person(author.port).page("Ælfred")
    check("He met Guthrum in Wessex." in shown and "Pennies – für immer ✈ 🪙" in shown, shown)
    check("vandals" in author.page("Ælfred", action="history"), "the history is not shown")
    compared = html.unescape(author.api("compare", fromrev=str(first), torev=str(second))["compare"]["body"])
    check("Silver" in compared and "Pennies" in compared, compared)


def links(wiki, author):
    """Links, categories and a template, whose change comes to the pages by the queue of jobs."""
    author.edit("Template:King", "A king of {{{1}}}.[[Category:Rulers]]")
    author.edit("Offa", "{{King|Mercia}} Not [[Ælfred]]<ref>A book</ref>, see https://example.org/coins?a=1. {{#ifeq:{{lc:A}}|a|[[Wessex]]}}")
    of = lambda name, **fields: sorted(page["title"] for page in author.query(name, **fields))  # noqa: E731
    wait_for(lambda: of("links", titles="Offa", prop="links"), ["Wessex", "Ælfred"], "links")
    wait_for(lambda: of("categorymembers", list="categorymembers", cmtitle="Category:Rulers"), ["Offa", "Template:King"], "members of the category")
    check_equal(of("backlinks", list="backlinks", bltitle="Ælfred"), ["Offa"], "links to a page")
    check_equal(of("embeddedin", list="embeddedin", eititle="Template:King"), ["Offa"], "pages with a template")
    check_equal(of("exturlusage", list="exturlusage", euquery="example.org/coins", euprotocol="https"), ["Offa"], "links to the outside")
    check("A king of Mercia." in author.page("Offa") and "A book" in author.page("Offa"), "the template and the footnote are not shown")
    # MediaWiki counts whole seconds: a page that is made and shown within the second of the template's change keeps its old look.
    shown = int(time.time())
    wait_until(lambda: int(time.time()) > shown, 5, "the next second")
    author.edit("Template:King", "Lord of {{{1}}}.[[Category:Monarchs]]")
    said = wiki.program("runJobs")
    check("refreshLinks" in said and "good" in said and "error=" not in said, said)
    check_equal(of("categorymembers", list="categorymembers", cmtitle="Category:Monarchs"), ["Offa", "Template:King"], "members after the jobs")
    check_equal(of("categorymembers", list="categorymembers", cmtitle="Category:Rulers"), [], "members of the old category")
    check_equal(author.query("statistics", meta="siteinfo", siprop="statistics")["jobs"], 0, "jobs that are left")
    check("Lord of Mercia." in Person(author.port).page("Offa"), "the new template is not shown")


def moves(author):
    """Moved, deleted, brought back, protected; what the logs and the recent changes say of it."""
    author.edit("Egbert", "A king, once.")
    revision = author.edit("Egbert", "A king of all.", minor="1")
    author.api("move", kind="csrf", **{"from": "Egbert", "to": "Ecgberht", "reason": "spelling"})
    check("Redirected from Egbert" in author.page("Egbert") and "A king of all." in author.page("Egbert"), "the old title leads nowhere")
    author.api("delete", kind="csrf", title="Ecgberht", reason="nobody knows him")
    check("missing" in author.query("pages", titles="Ecgberht")[0], "it is there still")
    check_equal(len(author.query("deletedrevisions", titles="Ecgberht", prop="deletedrevisions", drvprop="ids|content", drvslots="main")), 3, "deleted revisions")
    check_equal(author.api("undelete", kind="csrf", title="Ecgberht")["undelete"]["revisions"], 3, "revisions that came back")
    check(revision in [found["revid"] for found in author.query("revisions", titles="Ecgberht", prop="revisions", rvlimit="9")], "a revision is lost")
    author.api("protect", kind="csrf", title="Ecgberht", protections="edit=sysop", expiry="infinite")
    check_equal(author.query("pages", titles="Ecgberht", prop="info", inprop="protection")[0]["protection"][0]["level"], "sysop", "protection")
    check_equal([event["action"] for event in author.query("logevents", list="logevents", letitle="Ecgberht")], ["protect", "restore", "delete"], "the log")
    for title, wanted in {"Egbert": ["log"], "Offa": ["new"], "Ælfred": ["edit", "edit", "edit", "new"]}.items():
        wait_for(lambda: sorted(change["type"] for change in author.query("recentchanges", list="recentchanges", rctitle=title)), wanted, f"recent changes of {title}")  # noqa: B023
    check("spelling" in author.page("Special:RecentChanges", days="1", limit="500") and "nobody knows him" in author.page("Special:Log"), "changes are not shown")
    author.edit("User talk:Visitor", "== Hello ==\nMore of [[Ecgberht]], please. ~~~~")
    visitor = Person(author.port)
    visitor.log_in("Visitor")
    wait_for(lambda: sorted(note["type"] for note in visitor.query("notifications", meta="notifications", notprop="list")["list"]), ["edit-user-talk", "welcome"], "notifications")
    check("Hello" in visitor.page("User talk:Visitor"), "the message")


def uploads(author):
    for width in (64, 80):
        said = author.api("upload", kind="csrf", file=apps.picture(width), filename="Coin.png", comment=f"{width} wide", text="[[Category:Coins]]", ignorewarnings="1")
        check_equal(said["upload"]["result"], "Success", said)
    author.edit("Coins", "[[File:Coin.png|frameless|A coin]]")
    versions = author.query("imageinfo", titles="File:Coin.png", prop="imageinfo", iiprop="size|sha1|url|comment|mime", iilimit="5")
    check_equal([(found["width"], found["comment"], found["mime"]) for found in versions], [(80, "80 wide", "image/png"), (64, "64 wide", "image/png")], "versions of a file")
    wait_for(lambda: [page["title"] for page in author.query("imageusage", list="imageusage", iutitle="File:Coin.png")], ["Coins"], "pages with the file")
    for version, width in zip(versions, (80, 64)):
        with author.opener.open(version["url"]) as answer:
            check_equal(answer.read(), apps.picture(width), "the file")
    check("80 wide" in author.page("File:Coin.png") and "Coin.png" in author.page("Special:ListFiles"), "the file is not shown")


TEXTS = {
    "Alpha": "The quick brown fox jumps over the lazy dog.",
    "Beta": "A brown and a quick fox sleeps, and sleeps, and sleeps. Its address is 192.168.1.1.",
    "Gamma": "The lazy dog sleeps all summer long, until it is hungry enough to look for whatever there is behind the house of its friend.",
    "Straße": "Überraschung für München.",
}


def searches(wiki, author):
    for title, text in TEXTS.items():
        author.edit(title, text)
    wait_for(lambda: author.found("überraschung münchen"), ["Straße"], "words beyond ASCII")
    for words, wanted in {
        "quick fox": ["Alpha", "Beta"], '"quick brown"': ["Alpha"], '"brown quick"': [], "slee*": ["Beta", "Gamma"], "SLEEPS": ["Beta", "Gamma"], "lazy summer": ["Gamma"], "fox summer": [],
        "192.168.1.1": ["Beta"], '"lazy dog" sleeps': ["Gamma"], "Ælfred": ["Offa"], "nowhere": [],
    }.items():  # fmt: skip
        check_equal(author.found(words), wanted, f"what is found for {words}")
    check_equal(author.found("Alpha", what="title"), ["Alpha"], "what is found by title")
    ranked = author.query("search", list="search", srsearch="sleeps", srwhat="text")
    check_equal([page["title"] for page in ranked], ["Beta", "Gamma"], "the order of what is found")
    check('<span class="searchmatch">sleeps</span>' in ranked[0]["snippet"], ranked)
    check_equal(author.api("opensearch", search="Alp")[1], ["Alpha"], "titles that begin so")
    shown = author.page("Special:Search", search='"quick brown"', fulltext="1")
    check("The quick brown fox" in shown and "Result 1 of 1" in shown, shown)
    # MediaWiki has no sign for words that may not be there.
    for words, wanted in {"+quick -lazy": "Beta", "+lazy -quick": "Gamma", "+sleeps ~brown": "Beta Gamma", "(quick summer) -jumps": "Beta Gamma", '-sleeps +"quick brown"': "Alpha"}.items():
        said = wiki.sql(f"SELECT page_title FROM page JOIN searchindex ON page_id = si_page WHERE MATCH(si_text) AGAINST('{words}' IN BOOLEAN MODE) ORDER BY page_title")
        check_equal(said.split(), wanted.split(), words)
    author.edit("Gamma", "A cat.")
    author.api("delete", kind="csrf", title="Beta")
    wait_for(lambda: author.found("sleeps"), [], "words that are gone")
    author.api("undelete", kind="csrf", title="Beta")
    wait_for(lambda: author.found("sleeps"), ["Beta"], "words that are back")
    check_equal(author.found("cat"), ["Gamma"], "new words")


def browse(author):
    """Pages with their styles and scripts, and the special pages that ask the most of a database."""
    page = author.ask("index.php?title=Main_Page")
    modules = [html.unescape(found) for found in re.findall(r'"(/load\.php\?[^"]+)"', page)]
    check(len(modules) > 1, page)
    for module in modules:
        check(len(author.ask(module[1:])) > 1000, module)
    for title in ["AllPages", "Statistics", "Version", "WhatLinksHere/Ælfred", "Categories", "Contributions/Keeper", "NewPages", "LonelyPages", "WantedPages", "MostLinkedCategories", "Watchlist", "AbuseFilter",
                  "LintErrors", "Notifications", "ReplaceText", "Export", "ActiveUsers", "LinkSearch", "DoubleRedirects", "Random", "ListGroupRights", "BlockList", "ProtectedPages", "MIMESearch/image/png"]:  # fmt: skip
        author.page(f"Special:{title}")
    check("Ælfred" in author.page("Special:WhatLinksHere/Wessex") and "Ecgberht" in author.page("Special:ProtectedPages"), "special pages do not show it")
    form = author.ask("index.php?title=%C3%86lfred&action=edit")
    check("wpTextbox1" in form and "Pennies" in form, form)
    check("Pennies" in author.ask("rest.php/v1/page/%C3%86lfred") and "Pennies" in author.api("parse", page="Ælfred")["parse"]["text"], "its source and what is made of it")


def up_to_date(wiki, author):
    """A database of an older version by `update.php`, and the search index made anew."""
    shown = lambda: [sorted(re.split(r",?\\n", re.sub(r" AUTO_INCREMENT=\d+", "", wiki.sql(f"SHOW CREATE TABLE {table}")))) for table in CHANGED]  # noqa: E731
    before, tables = shown(), set(wiki.sql("SHOW TABLES").split())
    wiki.sql(OLDER)
    check_equal([older for older, newer in zip(shown(), before) if older == newer], [], "tables that are not older")
    said = wiki.program("update", "--quick")
    check("Done in" in said and "error" not in said.lower(), said[-3000:])
    # A text has room for as many letters as before, so that it has become longer.
    wanted = [[line.replace("`si_text` mediumtext", "`si_text` longtext") for line in table] for table in before]
    check_equal([table for table in shown() if table not in wanted], [], "tables that are not as they were")
    check_equal(tables - set(wiki.sql("SHOW TABLES").split()), set(), "tables that are missing")
    check("Done." in wiki.program("rebuildtextindex"), "the search index is not made anew")
    check_equal(shown()[-1], wanted[-1], "the table of the search index")
    check_equal((author.found('"quick brown"'), author.found("überraschung")), (["Alpha"], ["Straße"]), "what is found in it")
    check_equal(wiki.sql("SELECT COUNT(*) - (SELECT COUNT(*) FROM page) FROM searchindex"), "0", "pages that are not in the index")


def write_and_read(author, visitor, number):
    word, title = f"swift{number}word", f"Page {number}"
    author.edit(title, f"The {word} flies. [[Category:Birds]]")
    author.edit(title, "It lands – für immer ✈.", section="new", sectiontitle=f"More of {word}")
    shown = visitor.page(title)
    check(f"The {word} flies." in shown and "für immer ✈" in shown, f"{title} is not shown whole: {shown}")
    check_equal(len(author.query("revisions", titles=title, prop="revisions", rvlimit="5")), 2, f"revisions of {title}")
    wait_for(lambda: author.found(f'"{word} flies"'), [title], f"what is found for {word}")
    check(title in visitor.page("Special:RecentChanges", limit="50"), f"{title} is not among the recent changes")
    return title


def under_fire(t, wiki, cluster, author):
    """Two write, read and search while each data node is killed and comes back. An edit whose transaction was open at that node is rolled back (1213); MediaWiki tells its author, who begins again."""
    titles, again, errors, done = [], [], [], threading.Event()

    def write(first):
        writer, visitor = Person(author.port), Person(author.port)
        try:
            writer.log_in()
            for number in itertools.count(first, 2):
                if done.is_set():
                    break
                try:
                    titles.append(write_and_read(writer, visitor, number))
                except Failure as error:
                    check(wiki.errors() == {ROLLED_BACK}, error)
                    again.append(number)
        except (Failure, OSError, KeyError, ValueError) as error:
            errors.append(repr(error))

    writers = [threading.Thread(target=write, args=(first,), daemon=True) for first in (1000, 1001)]
    for writer in writers:
        writer.start()
    killed = 0
    for killed, _ in enumerate(cluster.kill_each(), 1):
        before = len(titles)
        wait_until(lambda: len(titles) > before + 1 or errors, 60, "pages are written")  # noqa: B023
    time.sleep(SECONDS)
    done.set()
    for writer in writers:
        writer.join(120)
    check_equal(errors, [], "what they met")
    check(len(again) <= killed * len(writers), f"{len(again)} edits were begun again")
    listed = {page["title"] for page in author.query("allpages", list="allpages", apprefix="Page", aplimit="500")}
    check_equal(sorted(set(titles) - listed), [], "pages that are lost")
    wiki.no_errors(but=ROLLED_BACK)
    t.say(f"{len(titles)} pages written, read and found, {len(again)} begun again after 1213")


def steps(t, database, cluster=None):
    wiki = Wiki(t.directory, database)
    with wiki.server() as port:
        author = Person(port)
        for name, step in {
            "it installs itself": lambda: installs(wiki, port),
            "accounts": lambda: accounts(port),
            "pages are edited; their history": lambda: (author.log_in(), history(author)),
            "links, categories, templates, and the queue of jobs": lambda: links(wiki, author),
            "pages are moved, deleted and brought back; the logs, recent changes and notifications": lambda: moves(author),
            "files": lambda: uploads(author),
            "search: words, phrases, beginnings, boolean, by relevance": lambda: searches(wiki, author),
            "its pages as a browser reads them": lambda: browse(author),
            "an older database is brought up to date; a new search index": lambda: up_to_date(wiki, author),
            **({"two write on while each data node is killed and joins again": lambda: under_fire(t, wiki, cluster, author)} if cluster else {}),
        }.items():
            with t.case(name):
                try:
                    step()
                finally:
                    wiki.no_errors()
            if not (wiki.site / "LocalSettings.php").exists():
                return


def main(t):
    problem = mysql.get(FOLDER, *PACKAGES)
    if problem:
        return t.say(f"not run: {problem}")
    with Cluster(t) as cluster:
        steps(t, Database(*cluster.sql), cluster)


if __name__ == "__main__":
    scenario_main(main)
