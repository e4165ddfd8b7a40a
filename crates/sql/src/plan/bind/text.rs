//! Literals that name their character set.

use apus_types::collate::{self, Charset, Collation};

use super::{Builder, Expr, Kind};
use crate::{
    errors::{self, Result},
    expr::{
        CastType,
        coercion::{self, collation_of},
        func::Func,
    },
    value::datum::Datum,
    wire::characters::{self, Spoken, SpokenCollation},
};

/// What it says depends on the bytes of a text.
pub(super) fn sees_bytes(f: Func) -> bool {
    use Func::*;
    matches!(f, Length | BitLength | Hex | Ascii | Ord | Md5 | Sha1 | Sha2 | Crc32 | ToBase64)
}

/// A text of latin1 as its bytes, and what was written in a foreign character set as those; all else as it is.
pub fn encoded(e: Expr, kinds: &[Kind]) -> Expr {
    let mut args = match coercion::connected().1 {
        _ if is_latin1(&e, kinds) => Vec::new(),
        SpokenCollation::Foreign(_) if !is_written(&e, kinds) => return e,
        SpokenCollation::Foreign(collation) => vec![Expr::Const(Datum::Int(collation.id().into()))],
        SpokenCollation::Own(_) => return e,
    };
    args.insert(0, e);
    Expr::Call(Func::Encoded, args, Collation::Binary)
}

/// A literal or parameter that is a text.
fn is_written(e: &Expr, kinds: &[Kind]) -> bool {
    matches!(e, Expr::Const(Datum::Text(_)) | Expr::Param(_)) && e.kind(kinds) == Kind::Text
}

pub fn is_latin1(e: &Expr, kinds: &[Kind]) -> bool {
    e.kind(kinds) == Kind::Text && collation_of(e, kinds).charset() == Charset::Latin1
}

/// What is compared by this collation: a text of latin1 as its bytes, where bytes are compared.
pub fn compared_as(collation: Collation, e: Expr, kinds: &[Kind]) -> Expr {
    if collation == Collation::Binary { encoded(e, kinds) } else { e }
}

impl Builder<'_> {
    /// As [`encoded`], of each.
    pub(super) fn encoded(&self, args: Vec<Expr>) -> Vec<Expr> {
        args.into_iter().map(|e| self.encoded_one(e)).collect()
    }

    pub(super) fn encoded_one(&self, e: Expr) -> Expr {
        encoded(e, &self.param_kinds)
    }

    /// As [`compared_as`].
    pub(super) fn compared_as(&self, collation: Collation, e: Expr) -> Expr {
        compared_as(collation, e, &self.param_kinds)
    }

    pub(super) fn is_bytes(&self, e: &Expr) -> bool {
        e.kind(&self.param_kinds) == Kind::Bytes
    }

    /// Parts of one value: texts of latin1 as their bytes, where one of the others is bytes.
    pub(super) fn put_together(&self, parts: Vec<Expr>) -> Vec<Expr> {
        if parts.iter().any(|e| self.is_bytes(e)) { self.encoded(parts) } else { parts }
    }

    /// INSTR or LOCATE: the text that is looked through says how.
    pub(super) fn looking(&self, f: Func, args: Vec<Expr>) -> Expr {
        let through = usize::from(f == Func::Locate);
        let collation = args.get(through).map_or_else(Collation::default, |e| collation_of(e, &self.param_kinds));
        Expr::Call(f, args, collation)
    }

    /// `_latin1'...'`: the bytes of the literal are a text of this character set.
    pub(super) fn introduced(&mut self, charset: Spoken, value: &sqlparser::ast::Expr) -> Result<Expr> {
        let bytes = match self.build(value)? {
            Expr::Param(_) if self.from_digest => return Err(errors::structural()),
            Expr::Const(Datum::Text(text)) if self.of_definition => text,
            Expr::Const(Datum::Text(text)) => coercion::written(text),
            Expr::Const(Datum::Bytes(bytes)) => bytes,
            Expr::Call(Func::BinaryLiteral | Func::BinaryNumber, mut args, _) => match args.pop() {
                Some(Expr::Const(Datum::Bytes(bytes))) => bytes,
                Some(Expr::Param(_)) => return Err(errors::structural()),
                _ => return Err(errors::not_supported("this literal behind a character set")),
            },
            _ => return Err(errors::not_supported("this literal behind a character set")),
        };
        let text = match charset {
            Spoken::Own(Charset::Binary) => {
                let bytes = Expr::Const(Datum::Bytes(bytes));
                return Ok(Expr::Cast(Box::new(bytes), CastType::Bytes(None)));
            }
            Spoken::Own(Charset::Latin1) => collate::from_latin1(&bytes).into_bytes(),
            Spoken::Foreign(_) => characters::read(charset, &bytes)?.into_owned(),
            Spoken::Own(charset) if str::from_utf8(&bytes).is_ok() && charset.first_outside(&bytes).is_none() => {
                bytes.into_owned()
            }
            _ => return Err(errors::invalid_bytes(charset.name(), &bytes)),
        };
        let literal = Expr::Const(Datum::Text(text.into()));
        Ok(Expr::Call(Func::Introduced, vec![literal], charset.default_collation().inside()))
    }
}
