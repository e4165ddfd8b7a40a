"""WordPress as Debian ships it, on PHP's own web server: it installs itself, posts, comments, uploads and searches, while data nodes are killed.

Every page is dozens of statements over one connection. No page may fail, and WordPress may not have noted an error of its database.
"""

import http.cookiejar
import json
import re
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from lib import apps
from lib.cluster import Cluster
from lib.harness import FULL, Failure, check, check_equal, scenario_main
from lib.mariadb import batch

LIMIT_SECONDS = (240, 600)
SIDE_BY_SIDE = True
PACKAGES = ["wordpress", "wordpress-theme-twentytwentythree", "php-cli", "php-mysql", "php-xml", "php-gd", "php-mbstring"]
EXTENSIONS = ["mysqlnd", "mysqli", "ctype", "dom", "exif", "fileinfo", "gd", "iconv", "mbstring", "simplexml", "tokenizer", "xml", "xmlreader", "xmlwriter"]
# For so long posts are written and read after the last node is back.
SECONDS = 20 if FULL else 3
PASSWORD = "a long pass phrase of this test"


def put_up(folder, home, sql):
    """WordPress's files, with a configuration."""
    site = home / "site"
    shutil.copytree(folder / "usr/share/wordpress", site, symlinks=False, ignore_dangling_symlinks=True)
    (site / "wp-content" / "uploads").mkdir(exist_ok=True)
    host, port = sql
    (site / "wp-config.php").write_text(
        f"""<?php
define('DB_NAME', 'wordpress'); define('DB_USER', 'root'); define('DB_PASSWORD', '');
define('DB_HOST', '{host}:{port}'); define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');
define('AUTH_KEY', '1'); define('SECURE_AUTH_KEY', '2'); define('LOGGED_IN_KEY', '3'); define('NONCE_KEY', '4');
define('AUTH_SALT', '5'); define('SECURE_AUTH_SALT', '6'); define('LOGGED_IN_SALT', '7'); define('NONCE_SALT', '8');
define('WP_DEBUG', true); define('WP_DEBUG_DISPLAY', false); define('WP_DEBUG_LOG', '{home / "debug.log"}');
define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true); define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"""
    )
    return site


class Site:
    """A visitor, who may have logged in."""

    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        self.nonce = None

    def get(self, path, data=None, headers=None):
        request = urllib.request.Request(f"{self.base}/{path}", data, headers or {})
        try:
            with self.opener.open(request, timeout=60) as answer:
                text = answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise Failure(f"{path}: {error.code} {error.read().decode(errors='replace')[-1500:]}") from error
        check("Error establishing a database connection" not in text and "critical error" not in text, f"{path}: {text[-1500:]}")
        return text

    def form(self, path, **fields):
        return self.get(path, urllib.parse.urlencode(fields).encode())

    def rest(self, route, body=None, raw=None, **headers):
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **({"X-WP-Nonce": self.nonce} if self.nonce else {}), **headers}
        return json.loads(self.get(f"index.php?rest_route={route}", data, headers))

    def log_in(self):
        self.get("wp-login.php")
        self.form("wp-login.php", log="admin", pwd=PASSWORD, testcookie="1", **{"wp-submit": "Log In"})
        self.nonce = self.get("wp-admin/admin-ajax.php?action=rest-nonce").strip()
        check_equal(self.rest("/wp/v2/users/me")["name"], "admin", "who has logged in")


def install(port):
    site = Site(port)
    text = site.form(
        "wp-admin/install.php?step=2", weblog_title="Apus", user_name="admin", admin_password=PASSWORD, admin_password2=PASSWORD,
        pw_weak="1", admin_email="nobody@example.org", blog_public="0", Submit="Install",
    )  # fmt: skip
    check("Success!" in text, re.sub(r"<[^>]+>", "", text)[-1500:])


def write_and_read(site, number):
    """One post with a comment and a picture, found again by everybody."""
    word = f"swift{number}word"
    post = site.rest("/wp/v2/posts", {"title": f"About {word}", "content": f"The {word} flies – für immer ✈.", "status": "publish"})
    comment = site.rest("/wp/v2/comments", {"post": post["id"], "content": f"I saw the {word}, number {number}"})
    check_equal(comment["status"], "approved", "a comment of the administrator")
    media = site.rest("/wp/v2/media", raw=apps.picture(), **{"Content-Type": "image/png", "Content-Disposition": f'attachment; filename="p{number}.png"'})
    changed = site.rest(f"/wp/v2/posts/{post['id']}", {"featured_media": media["id"], "title": f"More about {word}"})
    check_equal(changed["title"]["raw"], f"More about {word}", "the title")
    visitor = Site(site.base.rsplit(":", 1)[1])
    page = visitor.get(f"?p={post['id']}")
    check(f"More about {word}" in page and f"I saw the {word}" in page and "für immer ✈" in page, f"post {post['id']} is not shown whole")
    check_equal([found["id"] for found in visitor.rest(f"/wp/v2/search&search={word}")], [post["id"]], f"what is found for {word}")
    check(f"More about {word}" in visitor.get(f"?s={word}"), "the search page does not find it")
    return post["id"]


def under_fire(t, cluster, port):
    """An author writes while each data node is killed and comes back."""
    author, posts, errors, done = Site(port), [], [], threading.Event()
    author.log_in()

    def write():
        while not done.is_set():
            try:
                posts.append(write_and_read(author, 1000 + len(posts)))
            except (Failure, OSError, KeyError, ValueError) as error:
                errors.append(repr(error))
                return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for _ in cluster.kill_each():
        wait_for_posts(posts, len(posts), errors)
    time.sleep(SECONDS)
    done.set()
    writer.join(120)
    check_equal(errors, [], "what the author met")
    listed = {post["id"] for page in range(1, 1 + (len(posts) + 99) // 100) for post in author.rest(f"/wp/v2/posts&per_page=100&page={page}")}
    check_equal(sorted(set(posts) - listed), [], "posts that are lost")
    t.say(f"{len(posts)} posts with comment and picture, no error")


def wait_for_posts(posts, before, errors):
    until = time.monotonic() + 60
    while len(posts) <= before and not errors:
        check(time.monotonic() < until, "no post is written any more")
        time.sleep(0.05)


def no_database_errors(home):
    log = home / "debug.log"
    said = log.read_text(errors="replace") if log.exists() else ""
    check("database error" not in said, said[-3000:])


def run(t, sql, cluster):
    folder = apps.unpacked("wordpress", *PACKAGES)
    host, port = sql
    code, text = batch("CREATE DATABASE wordpress", host=host, port=port)
    check(code == 0, text)
    site = put_up(folder, t.directory, sql)
    with apps.php_server(folder, t.directory, site, EXTENSIONS, "memory_limit=256M") as port:
        with t.case("it installs itself"):
            install(port)
            no_database_errors(t.directory)
        with t.case("posts, comments, media, search and the admin's pages"):
            author = Site(port)
            author.log_in()
            write_and_read(author, 1)
            for page in ["", "edit.php", "edit-comments.php", "upload.php", "options-general.php", "users.php", "site-health.php"]:
                check("wpadminbar" in author.get(f"wp-admin/{page}"), f"wp-admin/{page}")
            no_database_errors(t.directory)
        if cluster:
            with t.case("an author writes on while each data node is killed and joins again"):
                under_fire(t, cluster, port)
                no_database_errors(t.directory)


def main(t):
    with Cluster(t) as cluster:
        run(t, cluster.sql, cluster)


if __name__ == "__main__":
    scenario_main(main)
