//! Names of character sets and collations in statements, and what belongs together.
//!
//! Texts are kept in UTF-8 whatever a column says. A character set says which characters a column takes ([`apus_types::collate::Charset`]), and what functions of bytes see.

use apus_types::collate::{Charset, Collation};

use super::token::Tokens;
use crate::{
    errors::{self, Result},
    wire::{
        SqlError,
        characters::{Spoken, SpokenCollation},
    },
};

/// Character sets of MySQL that Apus has not; their collations begin with their names.
const OTHERS: [&str; 36] = [
    "armscii8", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "dec8", "eucjpms",
    "euckr", "gb18030", "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin2",
    "latin5", "latin7", "macce", "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le", "utf32",
];
/// Middles of the names of collations of Apus's character sets that it has not.
const LANGUAGES: &str = " danish german1 german2 spanish spanish2 croatian czech esperanto estonian hungarian icelandic latvian lithuanian persian \
    polish romanian roman sinhala slovak slovenian swedish turkish vietnamese tolower general_mysql500 bg bs cs da de_pb eo es es_trad et gl hr hu is ja la lt lv \
    mn_cyrl nb nn pl ro ru sk sl sr_latn sv tr vi zh ";

/// # Errors
/// 1115: nobody knows it, 1235: MySQL does.
pub fn charset_named(name: &str) -> Result<Charset> {
    Charset::from_name(name).ok_or_else(|| match OTHERS.iter().any(|other| other.eq_ignore_ascii_case(name)) {
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
    if OTHERS.contains(&charset) {
        return matches!(rest.rsplit('_').next(), Some("ci" | "cs" | "bin"));
    }
    let ends = ["_0900_ai_ci", "_0900_as_cs", "_0900_as_cs_ks", "_ci"];
    let language = ends.iter().find_map(|end| rest.strip_suffix(end));
    Charset::from_name(charset).is_some() && language.is_some_and(|word| LANGUAGES.contains(&format!(" {word} ")))
}

/// Of results, literals and files.
///
/// # Errors
/// 1115: nobody knows it, 1235: MySQL does.
pub fn spoken_named(name: &str) -> Result<Spoken> {
    Spoken::from_name(name).map_or_else(|| charset_named(name).map(Spoken::Own), Ok)
}

/// Of what a client says.
///
/// # Errors
/// 1115: nobody knows it, 1231: no client can speak it, 1235: MySQL knows it.
pub fn client_named(name: &str) -> Result<Spoken> {
    let is_wide = ["ucs2", "utf16", "utf16le", "utf32"].contains(&name.to_ascii_lowercase().as_str());
    if is_wide { Err(errors::wrong_variable_value("character_set_client", name)) } else { spoken_named(name) }
}

/// Of a connection.
///
/// # Errors
/// 1273: nobody knows it, 1235: MySQL does.
pub fn spoken_collation_named(name: &str) -> Result<SpokenCollation> {
    SpokenCollation::from_name(name).map_or_else(|| collation_named(name).map(SpokenCollation::Own), Ok)
}

/// # Errors
/// 1253: it is of another character set.
pub fn check(collation: Collation, charset: Charset) -> Result<()> {
    check_spoken(SpokenCollation::Own(collation), Spoken::Own(charset))
}

/// # Errors
/// 1253: it is of another character set.
pub fn check_spoken(collation: SpokenCollation, charset: Spoken) -> Result<()> {
    if collation.charset() == charset {
        return Ok(());
    }
    let text = format!("COLLATION '{}' is not valid for CHARACTER SET '{}'", collation.name(), charset.name());
    Err(SqlError::new(1253, b"42000", text))
}

/// One character set has all characters of the other.
pub fn holds(charset: Charset, other: Charset) -> bool {
    let size = |charset| match charset {
        Charset::Binary => 4,
        Charset::Utf8mb4 => 3,
        Charset::Utf8mb3 => 2,
        Charset::Latin1 => 1,
        Charset::Ascii => 0,
    };
    size(charset) >= size(other)
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
        assert_eq!(errno("latin1_german2_ci"), 1235);
        assert_eq!(errno("gbk_chinese_ci"), 1235);
        assert_eq!(charset_named("klingon").unwrap_err().errno, 1115);
        assert_eq!(charset_named("cp1250").unwrap_err().errno, 1235);
        assert_eq!(charset_named("UTF8").unwrap(), Charset::Utf8mb3);
    }
}
