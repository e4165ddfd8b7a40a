//! The rooms of this crate: which stand on which. ARCHITECTURE.md has the way of a statement through them.
//!
//! A room is a folder or file of `src`. It may use what stands before it in [`ROOMS`], never what stands behind. What is left against that is in [`UPWARDS`], each arrow with
//! its reason; a line that is not needed any more fails the test, so the list only shrinks. What unit tests use is not looked at.
//!
//! An `impl SqlEngine` may stand in any room above `session`, and its methods can be called from any; the arrows that calls of methods are nobody sees here.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// From the bottom up.
const ROOMS: &[&str] = &[
    "wire",      // packets, both ways
    "errors",    // MySQL's numbers and words
    "value",     // numbers, texts, moments, documents; how they are shown
    "accounts",  // who may log in, what he may do
    "parse",     // text: tokens, normal forms, hints, statements about accounts
    "server",    // connections, TLS, logins, limits; the boundary of the engine
    "full_text", // words and ranks
    "files",     // files of the machine
    "monitor",   // what is counted of statements
    "variables", // system variables, of sessions and of the node
    "expr",      // the evaluator
    "spill",     // rows that a statement keeps
    "catalog",   // tables as SQL sees them
    "plan",      // names and types bound, access paths, orders of joins, the plan cache
    "session",   // transaction, rights, prepared statements, buffers
    "program",   // procedures, functions, triggers, events
    "exec",      // plans carried out
    "ddl",       // schema statements
    "admin",     // SET, SHOW, INFORMATION_SCHEMA, EXPLAIN, accounts
    "dispatch",  // from a command to its executor
];

/// Module, the room that it uses although that stands higher, and why.
const UPWARDS: &[(&str, &str, &str)] = &[
    ("accounts::password", "parse", "hexadecimal digits"),
    ("accounts::requires", "server", "what TLS says of the client"),
    ("catalog", "ddl", "names of tables that are being made"),
    ("catalog", "plan", "a version of a table keeps its bound expressions"),
    ("catalog", "program", "a version of the dictionary keeps what bodies compile to"),
    ("catalog::foreign_key", "session", "foreign_key_checks of the session"),
    ("catalog::information_schema", "program", "a version of the dictionary keeps what bodies compile to"),
    ("catalog::key_parts", "plan", "a version of a table keeps its bound expressions"),
    ("catalog::statistics", "plan", "a version of a table keeps its bound expressions"),
    ("catalog::view", "plan", "a version of a table keeps its bound expressions"),
    ("catalog::visibility", "plan", "a version of a table keeps its bound expressions"),
    ("ddl::execute", "admin", "TRUNCATE of performance_schema"),
    ("errors", "catalog", "words of an error"),
    ("errors::foreign_key", "catalog", "words of an error"),
    ("errors::value", "value", "words of an error"),
    ("exec::query::hash", "admin", "rows of virtual tables"),
    ("exec::read", "admin", "rows of virtual tables"),
    ("expr", "program", "a call in an expression holds its function, and finds its answer in Env"),
    ("expr::env", "program", "a call in an expression holds its function, and finds its answer in Env"),
    ("expr::env", "spill", "Env and Variables know the room that files of statements have"),
    ("expr::eval", "program", "a call in an expression holds its function, and finds its answer in Env"),
    ("expr::result_cells", "catalog", "indexes of a column, as flags of a result"),
    ("files::encode", "expr", "rows as they are written to files"),
    ("files::encode", "plan", "rows as they are written to files"),
    ("files::read", "expr", "rows as they are written to files"),
    ("files::write", "exec", "rows as they are written to files"),
    ("files::write", "expr", "rows as they are written to files"),
    ("files::write", "plan", "rows as they are written to files"),
    ("files::write", "session", "rows as they are written to files"),
    ("full_text::search", "spill", "its lists of byte strings"),
    ("monitor::status", "plan", "what is counted of a plan"),
    ("monitor::status", "session", "what is counted of a session"),
    ("parse::account_options", "program", "words of an error"),
    ("parse::view_text", "plan", "what names mean, for the text of views"),
    ("parse::view_text::functions", "plan", "what names mean, for the text of views"),
    ("plan", "program", "names in bodies, and calls of functions, are bound here"),
    ("plan", "session", "rights of the session, and what hints change of it"),
    ("plan::bind", "program", "names in bodies, and calls of functions, are bound here"),
    ("plan::bind::program", "program", "names in bodies, and calls of functions, are bound here"),
    ("plan::hint", "session", "rights of the session, and what hints change of it"),
    ("plan::needs", "program", "names in bodies, and calls of functions, are bound here"),
    ("plan::select", "admin", "an expression alone, as SET reads it"),
    ("program::event::define", "admin", "an expression alone, as SET reads it"),
    ("program::routine::compile::sql_texts", "admin", "an expression alone, as SET reads it"),
    ("session", "program", "what is under way in the session"),
    ("session::authorize", "ddl", "rights that a definition needs"),
    ("session::warnings", "program", "what is under way in the session"),
    ("value::bits", "parse", "literals of bits"),
    ("value::datum", "expr", "conversions of documents"),
    ("variables", "expr", "kinds of values of variables"),
    ("variables", "spill", "Env and Variables know the room that files of statements have"),
    ("variables::globals", "spill", "Env and Variables know the room that files of statements have"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The module that a file is.
fn module_of(path: &Path) -> Vec<String> {
    let relative = path.strip_prefix(root()).expect("a file of src").with_extension("");
    let mut parts: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// Words and signs of a file without its comments, texts and unit tests.
fn words_of(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut words: Vec<String> = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            end_of_text(rest)
        } else if rest.starts_with("::") {
            words.push("::".to_owned());
            2
        } else if first.is_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            words.push(rest[..length].to_owned());
            length
        } else {
            if matches!(first, '{' | '}' | ',') {
                words.push(first.to_string());
            }
            // A quotation mark or a brace as a character.
            let is_character = first == '\'' && rest[1..].chars().nth(1) == Some('\'');
            if is_character { 3.min(rest.len()) } else { first.len_utf8() }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    words
}

fn end_of_text(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == '"' && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

/// The rooms that a module names, by paths from the root of the crate.
fn named_by(module: &[String], words: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is = |at: usize, word: &str| words.get(at).is_some_and(|w| w == word);
    for at in 0..words.len() {
        if at > 0 && is(at - 1, "::") {
            continue;
        }
        // `crate::`, or as many `super::` as lead to the root.
        let mut behind = at;
        let mut ups = 0;
        while is(behind, "super") && is(behind + 1, "::") {
            (behind, ups) = (behind + 2, ups + 1);
        }
        let is_root = is(at, "crate") && is(at + 1, "::") || ups > 0 && ups == module.len();
        if !is_root {
            continue;
        }
        let behind = if ups > 0 { behind } else { at + 2 };
        if !is(behind, "{") {
            found.extend(words.get(behind).cloned());
            continue;
        }
        let mut depth = 0;
        for (i, word) in words[behind..].iter().enumerate() {
            match word.as_str() {
                "{" => depth += 1,
                "}" if depth == 1 => break,
                "}" => depth -= 1,
                "," | "::" => {}
                _ if depth == 1 && matches!(words[behind + i - 1].as_str(), "{" | ",") => {
                    found.insert(word.clone());
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn no_room_uses_one_above_it() {
    let place = |room: &str| ROOMS.iter().position(|known| *known == room);
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let (mut wrong, mut needed) = (Vec::new(), BTreeSet::new());
    for file in &files {
        let module = module_of(file);
        let Some(room) = module.first().filter(|_| !module.iter().any(|part| part == "tests")) else { continue };
        let own = place(room).unwrap_or_else(|| panic!("{room} has no place in ROOMS"));
        let words = words_of(&fs::read_to_string(file).expect("a source file"));
        for used in named_by(&module, &words) {
            if place(&used).is_none_or(|used| used <= own) {
                continue;
            }
            let name = module.join("::");
            match UPWARDS.iter().find(|(from, to, _)| *from == name && *to == used) {
                Some(exception) => drop(needed.insert(*exception)),
                None => wrong.push(format!("{name} uses {used}, which stands above {room}")),
            }
        }
    }
    assert!(wrong.is_empty(), "move the item to where both may use it:\n{}", wrong.join("\n"));
    let idle: Vec<_> = UPWARDS.iter().filter(|line| !needed.contains(*line)).collect();
    assert!(idle.is_empty(), "no longer so, take it out of UPWARDS: {idle:?}");
}

/// A longer one has two subjects: each gets its own.
const LINES_MAX: usize = 500;

#[test]
fn no_file_is_long() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    for file in files {
        let lines = fs::read_to_string(&file).expect("a source file").lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines: look for the second noun", file.display());
    }
}

#[test]
fn paths_are_found() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Vec<_>>();
    let found =
        |name: &str, text: &str| named_by(&module(name), &words_of(text)).into_iter().collect::<Vec<_>>().join(" ");
    let groups = "use crate::{\n    exec::{self, a::B},\n    plan::C,\n    wire,\n};\n// crate::ddl::x\nfn f() { g(\"crate::admin\", '\"'); crate::session::h() }";
    assert_eq!(found("expr::eval", groups), "exec plan session wire");
    assert_eq!(found("expr::eval", "use super::super::plan::A; use super::ddl::B;"), "plan");
    assert_eq!(found("expr", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::plan::A;\n}"), "");
}
