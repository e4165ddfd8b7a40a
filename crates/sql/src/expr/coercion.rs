//! Which collation texts are compared by: MySQL's coercibility (Reference Manual, "Collation Coercibility in Expressions").
//!
//! Every expression has a collation and a strength with which it insists on it. The strongest side decides. Of two equally strong ones
//! that differ, a binary string wins over text and a `_bin` collation over others; two COLLATE clauses that differ are error 1267. So are two
//! columns that differ where they are compared; where they are only put together (CONCAT, COALESCE) the result is compared by
//! bytes and gives way to everything. Of two character sets the one wins that insists more, or has all characters of the other.
//!
//! Literals, and texts made of numbers, have the collation of the connection (`collation_connection`). A thread binds one statement at a time, so it
//! is kept per thread while that goes on ([`connect`]).

use apus_types::{
    ColumnType,
    collate::{Charset, Collation},
};
use std::cell::Cell;

use super::{CastType, ColumnRef, Expr, Func, Kind};
use crate::{
    errors::{self, Result},
    value::decimal,
    variables::Variables,
    wire::SqlError,
};

thread_local! {
    static CONNECTION: Cell<(Charset, Collation)> =
        const { Cell::new((Charset::Utf8mb4, Collation::DEFAULT)) };
}

/// From here on this thread binds for a session with these variables.
pub fn connect(variables: &Variables) {
    connect_as(variables.spoken());
}

/// From here on it binds what was written in a character set, with literals of a collation.
pub fn connect_as(connection: (Charset, Collation)) {
    CONNECTION.set(connection);
}

pub fn connected() -> (Charset, Collation) {
    CONNECTION.get()
}

/// The collation of literals.
pub fn connection() -> Collation {
    CONNECTION.get().1
}

/// How strongly an expression insists on its collation; the smaller number wins, as COERCIBILITY() shows them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Strength {
    /// A COLLATE clause.
    Explicit = 0,
    /// A column, a user variable, a cast.
    Implicit = 2,
    /// USER(), VERSION() and their like.
    System = 3,
    /// A literal or parameter.
    Literal = 4,
    /// A number or a moment.
    Number = 5,
    Null = 6,
    /// Made of parts that do not agree.
    Nothing = 7,
}

impl Strength {
    /// As error messages spell it.
    fn name(self) -> &'static str {
        match self {
            Strength::Explicit => "EXPLICIT",
            Strength::Implicit => "IMPLICIT",
            Strength::System => "SYSCONST",
            Strength::Literal => "COERCIBLE",
            Strength::Number => "NUMERIC",
            Strength::Null => "IGNORABLE",
            Strength::Nothing => "NONE",
        }
    }
}

/// The collation of an expression and how strongly it insists on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coercion {
    pub collation: Collation,
    pub strength: Strength,
}

impl Coercion {
    fn new(collation: Collation, strength: Strength) -> Coercion {
        Coercion { collation, strength }
    }

    /// Of two together; `None` where neither gives way and no rule decides.
    fn with(self, other: Coercion) -> Option<Coercion> {
        let is_binary = |c: Coercion| c.collation == Collation::Binary;
        if is_binary(self) != is_binary(other) {
            let (binary, text) = if is_binary(self) { (self, other) } else { (other, self) };
            return Some(if binary.strength <= text.strength { binary } else { text });
        }
        let (own, others) = (self.collation.charset(), other.collation.charset());
        if own != others {
            return match () {
                () if self.has_all_of(other) => Some(self),
                () if other.has_all_of(self) => Some(other),
                () if self.strength < other.strength && other.strength >= Strength::System => Some(self),
                () if other.strength < self.strength && self.strength >= Strength::System => Some(other),
                () => None,
            };
        }
        Some(match self.strength.cmp(&other.strength) {
            std::cmp::Ordering::Less => self,
            std::cmp::Ordering::Greater => other,
            _ if self.collation == other.collation => self,
            _ if self.strength == Strength::Explicit => return None,
            _ if self.collation.is_binary() => self,
            _ if other.collation.is_binary() => other,
            _ => Coercion::new(own.binary_collation(), Strength::Nothing),
        })
    }

    /// Its character set has all characters of the other's in MySQL's eyes, and it does not insist less.
    fn has_all_of(self, other: Coercion) -> bool {
        let (own, others) = (self.collation.charset(), other.collation.charset());
        let unicode = |charset| match charset {
            Charset::Utf8mb3 | Charset::Ucs2 | Charset::Utf16 | Charset::Utf16le => Some(1),
            Charset::Utf8mb4 => Some(2),
            Charset::Utf32 => Some(3),
            _ => None,
        };
        let is_larger = match (unicode(own), unicode(others)) {
            (Some(rank), Some(other)) => rank > other,
            (Some(_), None) => true,
            (None, _) => others == Charset::Ascii,
        };
        let may_be = unicode(own).is_some() || others == Charset::Ascii;
        self.strength < other.strength && may_be || self.strength == other.strength && is_larger
    }

    pub fn of(e: &Expr, params: &[Kind]) -> Coercion {
        let usual = |strength| Coercion::new(connection(), strength);
        let by_kind = |kind: Kind, strength| match kind {
            Kind::Text => usual(strength),
            Kind::Bytes => Coercion::new(Collation::Binary, strength),
            Kind::Json => Coercion::new(Collation::Utf8mb4Bin, strength),
            Kind::Null => Coercion::new(Collation::Binary, Strength::Null),
            _ => usual(Strength::Number),
        };
        let joined = |parts: &mut dyn Iterator<Item = &Expr>| join(parts.map(|e| Coercion::of(e, params)));
        match e {
            Expr::Column(ColumnRef { ty, .. })
            | Expr::Outer(ColumnRef { ty, .. })
            | Expr::NewColumn(ColumnRef { ty, .. })
            | Expr::Variable(_, ty)
            | Expr::Given(_, ty, _) => match ty.collation() {
                Some(collation) => Coercion::new(collation, Strength::Implicit),
                None => by_kind(Kind::of(*ty), Strength::Implicit),
            },
            Expr::Stored(stored, _) => match stored.ty.collation() {
                Some(collation) => Coercion::new(collation, Strength::Literal),
                None => by_kind(Kind::of(stored.ty), Strength::Literal),
            },
            Expr::Const(_) | Expr::Param(_) => by_kind(e.kind(params), Strength::Literal),
            Expr::UserVariable(_, kind, _) => by_kind(*kind, Strength::Implicit),
            Expr::SystemVariable { .. } => by_kind(e.kind(params), Strength::System),
            Expr::Aggregate(_, Kind::Text, collation) => Coercion::new(*collation, Strength::Implicit),
            Expr::Aggregate(_, kind, _) => by_kind(*kind, Strength::Implicit),
            Expr::Cast(_, CastType::Text(_)) => usual(Strength::Implicit),
            Expr::Cast(_, CastType::Faced(_)) => usual(Strength::Number),
            Expr::Cast(_, CastType::Bytes(_)) => Coercion::new(Collation::Binary, Strength::Implicit),
            Expr::Cast(
                inner,
                CastType::Exact { .. } | CastType::Moment { .. } | CastType::Literal(_) | CastType::Year { .. },
            ) => Coercion::of(inner, params),
            Expr::Call(Func::Collate, _, collation) => Coercion::new(*collation, Strength::Explicit),
            Expr::Call(Func::User | Func::CurrentUser | Func::CurrentRole | Func::Database | Func::Version, ..) => {
                Coercion::new(Collation::Utf8mb3GeneralCi, Strength::System)
            }
            Expr::Call(Func::ConvertUsing, _, collation) => Coercion::new(*collation, Strength::Implicit),
            Expr::Call(Func::Introduced, _, collation) => Coercion::new(*collation, Strength::Literal),
            Expr::Call(f, args, _) if f.is_json_text() && f.kind(args, params) == Kind::Text => {
                Coercion::new(Collation::Utf8mb4Bin, Strength::Literal)
            }
            Expr::Call(f, args, _) => match f.kind(args, params) {
                Kind::Text if makes_own_text(*f) => usual(Strength::Literal),
                Kind::Text if changes_first_text(*f) && is_of_one_charset(args, params) => {
                    Coercion::of(&args[0], params)
                }
                Kind::Text => joined(&mut args.iter().skip(usize::from(matches!(f, Func::If | Func::Elt)))),
                kind => by_kind(kind, Strength::Literal),
            },
            Expr::Case { whens, otherwise, .. } => {
                joined(&mut whens.iter().map(|(_, then)| then).chain(otherwise.as_deref()))
            }
            other => by_kind(other.kind(params), Strength::Literal),
        }
    }
}

/// The collation of parts that are put together; numbers become texts without an own wish.
fn join(parts: impl Iterator<Item = Coercion>) -> Coercion {
    let none = Coercion::new(connection(), Strength::Literal);
    let text = parts.filter(|c| c.strength != Strength::Number && c.strength != Strength::Null);
    let conflict = Coercion::new(Collation::Utf8mb4Bin, Strength::Nothing);
    text.reduce(|a, b| a.with(b).unwrap_or(conflict)).unwrap_or(none)
}

/// Functions whose text is their first argument's, with changes.
fn changes_first_text(f: Func) -> bool {
    use Func::*;
    matches!(f, Replace | Insert | LPad | RPad | Trim | SubstringIndex)
}

/// Whether all texts have the character set of the first argument, which is one.
fn is_of_one_charset(args: &[Expr], params: &[Kind]) -> bool {
    let texts = args.iter().filter(|e| e.kind(params) == Kind::Text);
    let charset = |e: &Expr| Coercion::of(e, params).collation.charset();
    args[0].kind(params) == Kind::Text && texts.map(charset).all(|other| other == charset(&args[0]))
}

/// Functions whose text has nothing of their arguments' texts.
fn makes_own_text(f: Func) -> bool {
    use Func::*;
    matches!(
        f,
        Hex | Sha1
            | Sha2
            | Md5
            | ToBase64
            | BinToUuid
            | Format
            | Conv
            | Bin
            | Oct
            | InetNtoa
            | Inet6Ntoa
            | DayName
            | MonthName
            | GetFormat
            | DateFormat
            | TimeFormat
            | Uuid
    )
}

/// The collation by which these are compared with each other.
///
/// # Errors
/// 1267, 1270 or 1271: none of them gives way. `operation` is for the message.
pub fn compared(list: &[&Expr], params: &[Kind], operation: &str) -> Result<Collation> {
    let all: Vec<Coercion> = list.iter().map(|e| Coercion::of(e, params)).collect();
    let mut texts = all.iter().copied().filter(|c| c.strength < Strength::Number || c.strength == Strength::Nothing);
    let Some(first) = texts.next() else { return Ok(connection()) };
    let decided = texts.try_fold(first, |a, b| match a.with(b) {
        Some(c) if c.strength == Strength::Nothing && a.strength != c.strength && b.strength != c.strength => None,
        other => other,
    });
    decided.map(|c| c.collation).ok_or_else(|| mix(&all, operation))
}

fn mix(all: &[Coercion], operation: &str) -> SqlError {
    let named: Vec<String> = all.iter().map(|c| format!("({},{})", c.collation.name(), c.strength.name())).collect();
    match named.as_slice() {
        [a, b] => errors::collation_mix(1267, &format!("{a} and {b}"), operation),
        [a, b, c] => errors::collation_mix(1270, &format!("{a}, {b}, {c}"), operation),
        _ => errors::collation_mix(1271, "", operation),
    }
}

/// Texts that become one: their character sets must agree on one.
///
/// # Errors
/// As of [`compared`], where they are of character sets of which none gives way.
pub fn put_together(list: &[Expr], params: &[Kind], operation: &str) -> Result<()> {
    let all: Vec<Coercion> = list.iter().map(|e| Coercion::of(e, params)).collect();
    let mut texts = all.iter().copied().filter(|c| c.strength != Strength::Number && c.strength != Strength::Null);
    let Some(first) = texts.next() else { return Ok(()) };
    let mut together = first;
    for text in texts {
        match together.with(text) {
            Some(both) => together = both,
            None if together.collation.charset() != text.collation.charset() => return Err(mix(&all, operation)),
            None => return Ok(()),
        }
    }
    Ok(())
}

/// As [`compared`], for functions whose result only carries the collation on: it never fails.
pub fn carried(list: &[Expr], params: &[Kind]) -> Collation {
    join(list.iter().map(|e| Coercion::of(e, params))).collation
}

/// The type of column that holds values of an expression.
pub fn type_of(kind: Kind, collation: apus_types::collate::Collation) -> ColumnType {
    match kind {
        Kind::Int => ColumnType::Int { bits: 64, unsigned: false },
        Kind::UInt => ColumnType::Int { bits: 64, unsigned: true },
        Kind::Decimal(scale) => ColumnType::Decimal { precision: decimal::DIGITS_MAX as u8, scale, unsigned: false },
        Kind::Double => ColumnType::Double,
        Kind::Text | Kind::Label => ColumnType::VarChar { length: TEXT_CHARS, collation },
        Kind::Json => ColumnType::Json,
        Kind::Bit(length) => ColumnType::Bit { length },
        Kind::Bytes | Kind::Null => ColumnType::VarBinary { length: u16::MAX },
        Kind::Date => ColumnType::Date,
        Kind::DateTime(decimals) => ColumnType::DateTime { decimals },
        Kind::Time(decimals) => ColumnType::Time { decimals },
    }
}

/// Characters of a computed text, as a client is told; more are kept all the same.
const TEXT_CHARS: u16 = 16_383;

/// The collation by which the values of an expression are ordered and told apart.
pub fn collation_of(e: &Expr, params: &[Kind]) -> Collation {
    Coercion::of(e, params).collation
}
