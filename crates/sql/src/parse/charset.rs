//! Names of character sets and collations in statements, and what belongs together.
//!
//! Texts are kept in UTF-8 whatever a column says. A character set says which characters a column takes ([`apus_types::collate::{Charset, Collation}`]), and what functions of bytes see.

use apus_types::collate::{Charset, Collation};

use super::token::Tokens;
use crate::{
    errors::{self, Result},
    wire::SqlError,
};

/// The character set of MySQL that Apus has not: it has no ASCII.
const OTHER: &str = "swe7";
/// Middles of the names of collations of Apus's character sets that it has not.
const LANGUAGES: &str = " danish german2 spanish spanish2 croatian czech esperanto estonian hungarian icelandic latvian lithuanian persian \
    polish romanian roman sinhala slovak slovenian swedish turkish vietnamese tolower general_mysql500 bg bs cs da de_pb eo es es_trad et gl hr hu is ja la lt lv \
    mn_cyrl nb nn pl ro ru sk sl sr_latn sv tr vi zh ";

/// # Errors
/// 1115: nobody knows it, 1235: MySQL does.
pub fn charset_named(name: &str) -> Result<Charset> {
    Charset::from_name(name).ok_or_else(|| match OTHER.eq_ignore_ascii_case(name) {
        true => errors::not_supported(&format!("character set {name}")),
        false => errors::unknown_charset(name),
    })
}

/// # Errors
/// 1273: nobody knows it, 1235: MySQL does.
pub fn collation_named(name: &str) -> Result<Collation> {
    Collation::from_name(name).ok_or_else(|| match is_of_mysql(&name.to_ascii_lowercase()) {
        true => errors::not_supported(&format!("collation {name}")),
        false => errors::unknown_collation(name),
    })
}

fn is_of_mysql(name: &str) -> bool {
    let (charset, rest) = name.split_once('_').unwrap_or((name, ""));
    match charset {
        OTHER => matches!(rest, "swedish_ci" | "bin"),
        "cp1250" | "latin2" => rest == "czech_cs",
        "ucs2" | "utf16" | "utf32" | "utf8" | "utf8mb3" | "utf8mb4" => {
            let ends = ["_0900_ai_ci", "_0900_as_cs", "_0900_as_cs_ks", "_ci"];
            let language = ends.iter().find_map(|end| rest.strip_suffix(end));
            language.is_some_and(|word| LANGUAGES.contains(&format!(" {word} ")))
        }
        _ => false,
    }
}

/// Of results and files.
///
/// # Errors
/// 1115: nobody knows it, 1235: MySQL does.
pub fn spoken_named(name: &str) -> Result<Charset> {
    charset_named(name).and_then(|charset| match charset.is_wide() {
        true => Err(errors::not_supported(&format!("character set {name}"))),
        false => Ok(charset),
    })
}

/// Of what a client says.
///
/// # Errors
/// 1115: nobody knows it, 1231: no client can speak it, 1235: MySQL knows it.
pub fn client_named(name: &str) -> Result<Charset> {
    charset_named(name).and_then(|charset| match charset.is_wide() {
        true => Err(errors::wrong_variable_value("character_set_client", name)),
        false => Ok(charset),
    })
}

/// # Errors
/// 1253: it is of another character set.
pub fn check(collation: Collation, charset: Charset) -> Result<()> {
    if collation.charset() == charset {
        return Ok(());
    }
    let text = format!("COLLATION '{}' is not valid for CHARACTER SET '{}'", collation.name(), charset.name());
    Err(SqlError::new(1253, b"42000", text))
}

/// One character set has all characters of the other.
pub fn holds(charset: Charset, other: Charset) -> bool {
    let planes = |charset| match charset {
        Charset::Utf8mb4 | Charset::Utf16 | Charset::Utf16le | Charset::Utf32 | Charset::Gb18030 => 2,
        Charset::Utf8mb3 | Charset::Ucs2 => 1,
        _ => 0,
    };
    charset == Charset::Binary
        || other != Charset::Binary
            && (charset == other || other == Charset::Ascii || planes(charset) > 0 && planes(charset) >= planes(other))
}

/// What a statement says of the characters of something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Characters {
    charset: Option<Charset>,
    collation: Option<Collation>,
    is_binary: bool,
}

impl Characters {
    /// Takes `CHARACTER SET x`, `CHARSET x` or `COLLATE x`; `false` if something else is next.
    pub fn take(&mut self, t: &mut Tokens) -> Result<bool> {
        if t.word("collate") {
            t.symbol('=');
            self.collate(&t.identifier()?)?;
        } else if t.word("charset")
            || (t.peek_word("character") && t.second_word("set") && t.word("character") && t.word("set"))
        {
            t.symbol('=');
            self.charset(&t.identifier()?)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    pub fn charset(&mut self, name: &str) -> Result<()> {
        self.charset = Some(charset_named(name)?);
        Ok(())
    }

    pub fn collate(&mut self, name: &str) -> Result<()> {
        self.collation = Some(collation_named(name)?);
        Ok(())
    }

    /// The attribute BINARY: the collation that compares code points.
    pub fn binary(&mut self) {
        self.is_binary = true;
    }

    /// # Errors
    /// 1253: the collation is of another character set.
    pub fn collation(self, default: Collation) -> Result<Collation> {
        Ok(match (self.charset, self.collation) {
            (Some(charset), Some(collation)) => {
                check(collation, charset)?;
                collation
            }
            (_, Some(collation)) => collation,
            (charset, None) if self.is_binary => charset.unwrap_or(default.charset()).binary_collation(),
            (Some(charset), None) => charset.default_collation(),
            (None, None) => default,
        })
    }
}

/// As SHOW CREATE says it of a table or a database: ` COLLATE...` is left out where the character set says it, in MySQL's eyes.
pub fn is_said(collation: Collation) -> bool {
    !collation.is_default_of_charset() || collation == Collation::Utf8mb40900AiCi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_there() {
        let errno = |name| collation_named(name).unwrap_err().errno;
        assert_eq!(errno("klingon"), 1273);
        assert_eq!(errno("utf8mb4_klingon_ci"), 1273);
        assert_eq!(errno("utf8mb4_de_pb_0900_ai_ci"), 1235);
        assert_eq!(errno("utf8mb4_swedish_ci"), 1235);
        assert_eq!(errno("latin1_german3_ci"), 1273);
        assert_eq!(errno("latin2_czech_cs"), 1235);
        assert_eq!(errno("swe7_bin"), 1235);
        assert_eq!(charset_named("klingon").unwrap_err().errno, 1115);
        assert_eq!(charset_named("swe7").unwrap_err().errno, 1235);
        assert_eq!(charset_named("UTF8").unwrap(), Charset::Utf8mb3);
    }
}
