//! Literals that name their character set.

use apus_types::collate::{Charset, Collation};

use super::{Builder, Expr, Kind};
use crate::{
    errors::{self, Result},
    expr::{CastType, coercion::collation_of, func::Func},
    value::datum::Datum,
    wire::{characters, foreign::Foreign},
};

/// What it says depends on the bytes of a text.
pub(super) fn sees_bytes(f: Func) -> bool {
    use Func::*;
    matches!(f, Length | BitLength | Hex | Ascii | Ord | Md5 | Sha1 | Sha2 | Crc32 | ToBase64)
}

/// A text whose character set has other bytes than UTF-8 as those; all else as it is.
pub fn encoded(e: Expr, kinds: &[Kind]) -> Expr {
    match has_own_bytes(&e, kinds) {
        Some(collation) => {
            let id = Expr::Const(Datum::Int(collation.id().into()));
            Expr::Call(Func::Encoded, vec![e, id], Collation::Binary)
        }
        None => e,
    }
}

/// The collation of a text whose bytes are not those of UTF-8 in MySQL.
pub fn has_own_bytes(e: &Expr, kinds: &[Kind]) -> Option<Collation> {
    let is_text = matches!(e.kind(kinds), Kind::Text | Kind::Label);
    let collation = is_text.then(|| collation_of(e, kinds));
    collation.filter(|collation| Foreign::of(collation.charset()).is_some())
}

/// What is compared by this collation: a text as its bytes where bytes are compared, and bytes as a text of its character set where texts are that have other bytes than UTF-8.
pub fn compared_as(collation: Collation, e: Expr, kinds: &[Kind]) -> Expr {
    if collation == Collation::Binary {
        encoded(e, kinds)
    } else if e.kind(kinds) == Kind::Bytes && Foreign::of(collation.charset()).is_some() {
        Expr::Call(Func::ConvertUsing, vec![e], collation)
    } else {
        e
    }
}

impl Builder<'_> {
    /// As [`encoded`], of each.
    pub(super) fn encoded(&self, args: Vec<Expr>) -> Vec<Expr> {
        args.into_iter().map(|e| self.encoded_one(e)).collect()
    }

    /// What ORD looks at: of a text with bytes of its own those of its first character, all of which count.
    pub(super) fn first_encoded(&self, args: Vec<Expr>) -> Vec<Expr> {
        let one = || Expr::Const(Datum::Int(1));
        match <[Expr; 1]>::try_from(args) {
            Ok([e]) if has_own_bytes(&e, &self.param_kinds).is_some() => {
                let collation = collation_of(&e, &self.param_kinds);
                vec![self.encoded_one(Expr::Call(Func::Left, vec![e, one()], collation)), one()]
            }
            Ok([e]) => vec![e],
            Err(args) => args,
        }
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

    /// Parts of one value: texts as their bytes, where one of the others is bytes.
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
    pub(super) fn introduced(&mut self, charset: Charset, value: &sqlparser::ast::Expr) -> Result<Expr> {
        let bytes = match self.build(value)? {
            Expr::Param(_) if self.from_digest => return Err(errors::structural()),
            Expr::Const(Datum::Text(text)) => text,
            Expr::Const(Datum::Bytes(bytes)) => bytes,
            Expr::Call(Func::BinaryLiteral | Func::BinaryNumber, mut args, _) => match args.pop() {
                Some(Expr::Const(Datum::Bytes(bytes))) => bytes,
                Some(Expr::Param(_)) => return Err(errors::structural()),
                _ => return Err(errors::not_supported("this literal behind a character set")),
            },
            _ => return Err(errors::not_supported("this literal behind a character set")),
        };
        if charset == Charset::Binary {
            let bytes = Expr::Const(Datum::Bytes(bytes));
            return Ok(Expr::Cast(Box::new(bytes), CastType::Bytes(None)));
        }
        let Some(text) = characters::text_of(charset, &bytes) else {
            return Err(characters::not_of(charset, &bytes));
        };
        let literal = Expr::Const(Datum::Text(text.into_owned().into()));
        Ok(Expr::Call(Func::Introduced, vec![literal], charset.default_collation()))
    }
}
