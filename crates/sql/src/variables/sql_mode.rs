//! `sql_mode`: the modes there are, and what they change.
//!
//! Modes of syntax (`ANSI_QUOTES`, `PIPES_AS_CONCAT`, `NO_BACKSLASH_ESCAPES`, `REAL_AS_FLOAT`, `HIGH_NOT_PRECEDENCE`) are known to the scanner of [`crate::parse::digest`] alone: it writes
//! every statement as it would be written without them, so no parser, cache or definition behind it has to ask (but LIKE, whose escape goes with
//! the backslashes). There, `||` that joins
//! texts is written `||/`, and NOT that binds like `!` is written `!/`, which MySQL has no use for.

use crate::{
    errors::{self, Result},
    parse::digest::Syntax,
    value::datum::Datum,
    wire::SqlError,
};

/// A mode: its bit in MySQL and its name.
type Mode = (u32, &'static str);

/// All bits that modes have, or had.
const BITS: u64 = (1 << 33) - 1;

/// In the order in which MySQL shows them.
const MODES: [Mode; 21] = [
    (0, "REAL_AS_FLOAT"),
    (1, "PIPES_AS_CONCAT"),
    (2, "ANSI_QUOTES"),
    // Spaces before the parenthesis of a function are always ignored.
    (3, "IGNORE_SPACE"),
    (5, "ONLY_FULL_GROUP_BY"),
    (6, "NO_UNSIGNED_SUBTRACTION"),
    // There are no directories of tables.
    (7, "NO_DIR_IN_CREATE"),
    (18, "ANSI"),
    (19, "NO_AUTO_VALUE_ON_ZERO"),
    (20, "NO_BACKSLASH_ESCAPES"),
    (21, "STRICT_TRANS_TABLES"),
    (22, "STRICT_ALL_TABLES"),
    (23, "NO_ZERO_IN_DATE"),
    (24, "NO_ZERO_DATE"),
    (25, "ALLOW_INVALID_DATES"),
    (26, "ERROR_FOR_DIVISION_BY_ZERO"),
    (27, "TRADITIONAL"),
    (29, "HIGH_NOT_PRECEDENCE"),
    (30, "NO_ENGINE_SUBSTITUTION"),
    (31, "PAD_CHAR_TO_FULL_LENGTH"),
    (32, "TIME_TRUNCATE_FRACTIONAL"),
];

/// All of them as labels of a SET, in the places of their bits; MySQL names bits that stand for nothing by their place from 1 on, but for the first.
pub fn labels() -> Vec<String> {
    let unused = |bit| if bit == 4 { "NOT_USED".to_owned() } else { format!("NOT_USED_{}", bit + 1) };
    (0..=32)
        .map(|bit| MODES.iter().find(|mode| mode.0 == bit).map_or_else(|| unused(bit), |mode| mode.1.to_owned()))
        .collect()
}

/// Modes that stand for several.
const SETS: [(&str, &[&str]); 2] = [
    ("ANSI", &["REAL_AS_FLOAT", "PIPES_AS_CONCAT", "ANSI_QUOTES", "IGNORE_SPACE", "ONLY_FULL_GROUP_BY"]),
    (
        "TRADITIONAL",
        &[
            "STRICT_TRANS_TABLES",
            "STRICT_ALL_TABLES",
            "NO_ZERO_IN_DATE",
            "NO_ZERO_DATE",
            "ERROR_FOR_DIVISION_BY_ZERO",
            "NO_ENGINE_SUBSTITUTION",
        ],
    ),
];

/// Which modes are in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SqlMode(u64);

impl SqlMode {
    /// Names joined by commas, or a number whose bits they are. Errors: 1231 for what is no mode, 3899 for bits of modes that MySQL had before, 1232 for what is no text or integer.
    pub fn parse(value: &Datum<'_>) -> Result<SqlMode> {
        let wrong = |what: &str| errors::wrong_variable_value("sql_mode", what);
        let mut mode = SqlMode(0);
        match value {
            Datum::Null => return Err(wrong("NULL")),
            Datum::Int(_) | Datum::UInt(_) => {
                let shown = value.as_string();
                let bits = shown.parse::<u64>().map_err(|_| wrong(&shown))?;
                if bits > BITS {
                    return Err(wrong(&shown));
                }
                let known = MODES.iter().fold(0, |known, mode| known | 1 << mode.0);
                if bits & !known != 0 {
                    let text = format!("sql_mode=0x{:08x} is not supported.", bits & !known);
                    return Err(SqlError::new(3899, b"HY000", text));
                }
                MODES.iter().filter(|mode| bits & 1 << mode.0 != 0).for_each(|m| mode.add(m));
            }
            Datum::Text(_) | Datum::Bytes(_) => {
                for name in value.as_string().split(',').filter(|name| !name.is_empty()) {
                    mode.add(MODES.iter().find(|m| m.1.eq_ignore_ascii_case(name)).ok_or_else(|| wrong(name))?);
                }
            }
            _ => return Err(errors::wrong_variable_type("sql_mode")),
        }
        Ok(mode)
    }

    fn add(&mut self, &(bit, name): &Mode) {
        self.0 |= 1 << bit;
        let members = SETS.iter().find(|set| set.0 == name).map_or(&[][..], |set| set.1);
        for mode in MODES.iter().filter(|m| members.contains(&m.1)) {
            self.0 |= 1 << mode.0;
        }
    }

    /// Whether a mode is in force, by its name in capitals.
    pub fn has(self, name: &str) -> bool {
        MODES.iter().any(|m| m.1 == name && self.0 & 1 << m.0 != 0)
    }

    pub fn names(self) -> String {
        let names: Vec<&str> = MODES.iter().filter(|m| self.0 & 1 << m.0 != 0).map(|m| m.1).collect();
        names.join(",")
    }

    /// What MySQL says of `PAD_CHAR_TO_FULL_LENGTH`.
    pub fn pads_chars_will_go() -> SqlError {
        let text = "Changing sql mode 'PAD_CHAR_TO_FULL_LENGTH' is deprecated. It will be removed in a future release.";
        SqlError::new(3090, b"HY000", text)
    }

    /// What the scanner has to know.
    pub fn syntax(self) -> Syntax {
        Syntax {
            ansi_quotes: self.has("ANSI_QUOTES"),
            pipes_concat: self.has("PIPES_AS_CONCAT"),
            no_backslash: self.has("NO_BACKSLASH_ESCAPES"),
            real_as_float: self.has("REAL_AS_FLOAT"),
            high_not: self.has("HIGH_NOT_PRECEDENCE"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_named_and_numbered_as_in_mysql() {
        let shown = |value: Datum<'_>| SqlMode::parse(&value).map(SqlMode::names).map_err(|e| e.errno);
        let ansi = "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI";
        assert_eq!(shown(Datum::text("ansi")).as_deref(), Ok(ansi));
        assert_eq!(shown(Datum::Int(262_144)).as_deref(), Ok(ansi));
        assert_eq!(
            shown(Datum::text("NO_ENGINE_SUBSTITUTION,,ANSI_QUOTES,")).as_deref(),
            Ok("ANSI_QUOTES,NO_ENGINE_SUBSTITUTION")
        );
        assert_eq!(shown(Datum::text("")).as_deref(), Ok(""));
        assert_eq!(shown(Datum::text(" ANSI")), Err(1231));
        assert_eq!(shown(Datum::Int(-1)), Err(1231));
        assert_eq!(shown(Datum::Int(1 << 34)), Err(1231));
        assert_eq!(shown(Datum::Null), Err(1231));
        assert_eq!(shown(Datum::Double(1.5)), Err(1232));
    }
}
