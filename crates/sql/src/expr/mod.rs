//! Expressions: a typed tree compiled once per plan, evaluated over stored rows with MySQL's semantics.
//!
//! Values convert dynamically ([`Datum`]); what is decided when the tree is built is the collation of each comparison, the
//! place of each column in the projected row, and the static [`Kind`] that a result column is declared with.

pub mod assign;
pub mod coercion;
pub mod env;
pub mod eval;
pub mod exact;
pub mod fold;
pub mod func;
pub mod json;
pub mod moments;
pub mod probe;
pub mod result_cells;
mod tree;

use apus_types::{RowLayout, collate::Collation, schema::ColumnType};
use std::sync::OnceLock;

use crate::{
    program::function::Stored,
    value::{datum::Datum, decimal, number_format::Face},
};

pub use env::Env;
pub use func::Func;

/// What kind of value an expression yields, as far as it is known before execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Null,
    Int,
    UInt,
    /// With this scale.
    Decimal(u8),
    Double,
    Text,
    Bytes,
    Date,
    DateTime(u8),
    Time(u8),
    /// Of a column that is an ENUM or a SET: a text, but it is in the order of its numbers.
    Label,
    /// A JSON document.
    Json,
    /// Of a BIT column of this length: a number that is shown as bytes.
    Bit(u8),
}

impl Kind {
    pub fn is_text(self) -> bool {
        matches!(self, Kind::Text | Kind::Bytes | Kind::Label)
    }
    /// Of what is computed from it: a label is a text.
    #[must_use]
    pub fn of_result(self) -> Kind {
        if self == Kind::Label { Kind::Text } else { self }
    }
    pub fn is_temporal(self) -> bool {
        matches!(self, Kind::Date | Kind::DateTime(_) | Kind::Time(_))
    }
    /// Of a column.
    pub fn of(ty: ColumnType) -> Kind {
        match ty {
            ColumnType::Int { unsigned: false, .. } => Kind::Int,
            ColumnType::Int { .. } | ColumnType::Year => Kind::UInt,
            ColumnType::Decimal { scale, .. } => Kind::Decimal(scale),
            ColumnType::Float | ColumnType::Double => Kind::Double,
            ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Text { .. } => Kind::Text,
            ColumnType::Binary { .. } | ColumnType::VarBinary { .. } | ColumnType::Blob { .. } => Kind::Bytes,
            ColumnType::Date => Kind::Date,
            ColumnType::DateTime { decimals } | ColumnType::Timestamp { decimals } => Kind::DateTime(decimals),
            ColumnType::Time { decimals } => Kind::Time(decimals),
            ColumnType::Label { .. } => Kind::Label,
            ColumnType::Json => Kind::Json,
            ColumnType::Bit { length } => Kind::Bit(length),
        }
    }
    /// Of a value.
    pub fn of_datum(d: &Datum<'_>) -> Kind {
        match d {
            Datum::Null => Kind::Null,
            Datum::Int(_) => Kind::Int,
            Datum::UInt(_) => Kind::UInt,
            Datum::Decimal { scale, .. } | Datum::Fine { shown: scale, .. } => Kind::Decimal(*scale),
            Datum::Double(_) => Kind::Double,
            Datum::Text(_) | Datum::Label(..) => Kind::Text,
            Datum::Bytes(_) => Kind::Bytes,
            Datum::Date(_) => Kind::Date,
            Datum::DateTime(_, n) => Kind::DateTime(*n),
            Datum::Time(_, n) => Kind::Time(*n),
            Datum::Json(_) => Kind::Json,
            Datum::Bit(_, length) => Kind::Bit(*length),
        }
    }
    /// The kind that holds values of both (CASE, COALESCE, UNION).
    pub fn unify(self, other: Kind) -> Kind {
        use Kind::*;
        if let (Bit(a), Bit(b)) = (self, other) {
            return Bit(a.max(b));
        }
        let is_number = |k| matches!(k, Int | UInt | Bit(_) | Decimal(_) | Double);
        match (self.of_result(), other.of_result()) {
            (Bit(_), k) if is_number(k) => UInt.unify(k),
            (k, Bit(_)) if is_number(k) => k.unify(UInt),
            (Null, k) | (k, Null) => k,
            (a, b) if a == b => a,
            (Int, UInt) | (UInt, Int) => Decimal(0),
            (Decimal(a), Decimal(b)) => Decimal(a.max(b)),
            (Decimal(s), Int | UInt) | (Int | UInt, Decimal(s)) => Decimal(s),
            (Double, Int | UInt | Decimal(_)) | (Int | UInt | Decimal(_), Double) => Double,
            (DateTime(a), DateTime(b)) => DateTime(a.max(b)),
            (Time(a), Time(b)) => Time(a.max(b)),
            (Date, DateTime(n)) | (DateTime(n), Date) => DateTime(n),
            (Date, Time(n)) | (Time(n), Date) => DateTime(n),
            (DateTime(a), Time(b)) | (Time(a), DateTime(b)) => DateTime(a.max(b)),
            (Bytes | Bit(_), _) | (_, Bytes | Bit(_)) => Bytes,
            // Also of JSON and something else.
            _ => Text,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArithOp {
    Add,
    Sub,
    /// A difference that has a sign whatever its operands have: `NO_UNSIGNED_SUBTRACTION`.
    SignedSub,
    Mul,
    Div,
    IntDiv,
    Mod,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl ArithOp {
    pub fn is_bitwise(self) -> bool {
        use ArithOp::*;
        matches!(self, BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareOp {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

impl CompareOp {
    pub fn holds(self, o: std::cmp::Ordering) -> bool {
        match self {
            CompareOp::Eq => o.is_eq(),
            CompareOp::NotEq => o.is_ne(),
            CompareOp::Lt => o.is_lt(),
            CompareOp::LtEq => o.is_le(),
            CompareOp::Gt => o.is_gt(),
            CompareOp::GtEq => o.is_ge(),
        }
    }
    /// What holds of two values where this one does not.
    pub fn negated(self) -> CompareOp {
        match self {
            CompareOp::Eq => CompareOp::NotEq,
            CompareOp::NotEq => CompareOp::Eq,
            CompareOp::Lt => CompareOp::GtEq,
            CompareOp::LtEq => CompareOp::Gt,
            CompareOp::Gt => CompareOp::LtEq,
            CompareOp::GtEq => CompareOp::Lt,
        }
    }
    /// With the sides exchanged.
    pub fn flipped(self) -> CompareOp {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::LtEq => CompareOp::GtEq,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::GtEq => CompareOp::LtEq,
            same => same,
        }
    }
}

/// A column of the row under evaluation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ColumnRef {
    /// Number of the column in its table; before execution rewritten to its place in the projected row.
    pub slot: u16,
    pub ty: ColumnType,
}

/// Target of a CAST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CastType {
    Signed,
    Unsigned,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Double,
    /// A constant that is compared with a column of exact numbers: a text that is such a number becomes it, the rest stays.
    Exact {
        /// Of decimals: an empty text is warned of, too.
        decimal: bool,
    },
    /// A constant that is compared with a moment: a text becomes the moment that it says, and is an error where it says none; with
    /// `alone` false (one of several in IN, a bound of BETWEEN) it stays, with a warning.
    Moment {
        kind: Kind,
        alone: bool,
        /// Of a column: a number that is no moment is warned of.
        of_column: bool,
    },
    /// The text of DATE '…', TIME '…' or TIMESTAMP '…': an error if it says anything else than a moment of this kind.
    Literal(Kind),
    /// A constant that is compared with a column of years: 20 is 2020, a date is its year. With `alone` false it stays as it is:
    /// several constants in IN are compared as texts unless one is a number.
    Year {
        alone: bool,
    },
    /// CAST AS YEAR.
    AsYear,
    /// A column of years where a moment is wanted: the beginning of the year.
    NewYear,
    /// One of several values, in the kind that holds all of them: an integer among decimals is one. `scaled`: with the digits of that kind.
    Chosen {
        kind: Kind,
        scaled: bool,
    },
    /// As a double, without a warning.
    Quiet,
    Float,
    /// Characters kept.
    Text(Option<u32>),
    Bytes(Option<u32>),
    /// The text of a column's number.
    Faced(Face),
    Date,
    DateTime(u8),
    Time(u8),
    Json,
    /// A document with its elements as values of this type ([`json::array`]), a value as one of them.
    Array(ColumnType),
    Element(ColumnType),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    Const(Datum<'static>),
    /// A literal lifted out by the digest or a parameter of the client, from 0.
    Param(usize),
    /// A variable of a procedure: the parameter of this number, which has values of this type.
    Variable(usize, ColumnType),
    Column(ColumnRef),
    /// A column of the joined row that a lookup starts from; of the row evaluated over, while keys of another table are made.
    Outer(ColumnRef),
    /// What is fixed for one run of a query block: a column of the query around it (then the flag is set), or the value of a subquery.
    Given(u16, ColumnType, bool),
    /// `VALUES(column)` in ON DUPLICATE KEY UPDATE: the row that was to be inserted.
    NewColumn(ColumnRef),
    /// Result of an aggregate of the group.
    Aggregate(usize, Kind, Collation),
    /// With the kind of the value it had when the statement was planned; the flag: the statement assigns variables, so that each row may see another value.
    UserVariable(String, Kind, bool),
    SystemVariable {
        name: String,
        global: bool,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    BitNot(Box<Expr>),
    Arith(ArithOp, Box<Expr>, Box<Expr>),
    Compare(CompareOp, Box<Expr>, Box<Expr>, Collation),
    NullSafeEq(Box<Expr>, Box<Expr>, Collation),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Xor(Box<Expr>, Box<Expr>),
    IsNull {
        expr: Box<Expr>,
        negated: bool,
    },
    IsTruth {
        expr: Box<Expr>,
        want: bool,
        negated: bool,
    },
    In {
        expr: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
        collation: Collation,
    },
    Between {
        expr: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
        collation: Collation,
    },
    Like {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<u8>,
        negated: bool,
        collation: Collation,
    },
    Case {
        operand: Option<Box<Expr>>,
        whens: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
        collation: Collation,
    },
    Cast(Box<Expr>, CastType),
    Call(Func, Vec<Expr>, Collation),
    /// A stored function.
    Stored(Box<Stored>, Vec<Expr>),
}

impl Expr {
    /// The type of a column of this query block or of one around it.
    pub fn column_type(&self) -> Option<ColumnType> {
        match self {
            Expr::Column(c) | Expr::Outer(c) => Some(c.ty),
            Expr::Given(_, ty, true) => Some(*ty),
            _ => None,
        }
    }

    /// Static kind, given the kinds of the parameters (text where not known).
    pub fn kind(&self, params: &[Kind]) -> Kind {
        match self {
            Expr::Const(d) => Kind::of_datum(d),
            Expr::Param(i) => params.get(*i).copied().unwrap_or(Kind::Text),
            Expr::Column(c) | Expr::Outer(c) | Expr::NewColumn(c) => Kind::of(c.ty),
            Expr::Given(_, ty, _) | Expr::Variable(_, ty) => Kind::of(*ty),
            Expr::Stored(stored, _) => Kind::of(stored.ty),
            Expr::Aggregate(_, kind, _) => *kind,
            Expr::UserVariable(_, kind, _) => *kind,
            Expr::SystemVariable { name, .. } => crate::variables::kind_of(name),
            Expr::Negate(e) => match e.kind(params) {
                Kind::UInt if matches!(**e, Expr::Const(_) | Expr::Param(_)) => Kind::Decimal(0), // may be below BIGINT
                Kind::UInt if matches!(**e, Expr::Call(Func::BinaryLiteral | Func::BinaryNumber, ..)) => Kind::Double,
                Kind::Int | Kind::UInt | Kind::Bit(_) => Kind::Int,
                Kind::Decimal(s) => Kind::Decimal(s),
                _ => Kind::Double,
            },
            Expr::BitNot(_) => Kind::UInt,
            Expr::Arith(op, a, b) => arith_kind(*op, a.kind(params), b.kind(params)),
            Expr::Not(_)
            | Expr::Compare(..)
            | Expr::NullSafeEq(..)
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::Xor(..)
            | Expr::IsNull { .. }
            | Expr::IsTruth { .. }
            | Expr::In { .. }
            | Expr::Between { .. }
            | Expr::Like { .. } => Kind::Int,
            Expr::Case { whens, otherwise, .. } => whens
                .iter()
                .map(|(_, then)| then)
                .chain(otherwise.iter().map(|e| &**e))
                .fold(Kind::Null, |kind, e| kind.unify(e.kind(params))),
            Expr::Cast(e, to) => match to {
                CastType::Signed => Kind::Int,
                CastType::Unsigned => Kind::UInt,
                CastType::Decimal { scale, .. } => Kind::Decimal(*scale),
                CastType::Double | CastType::Quiet => Kind::Double,
                CastType::AsYear => Kind::UInt,
                CastType::NewYear => Kind::DateTime(0),
                CastType::Chosen { kind, .. } => *kind,
                CastType::Exact { .. } | CastType::Moment { .. } | CastType::Literal(_) | CastType::Year { .. } => {
                    e.kind(params)
                }
                CastType::Float => Kind::Double,
                CastType::Text(_) | CastType::Faced(_) => Kind::Text,
                CastType::Bytes(_) => Kind::Bytes,
                CastType::Date => Kind::Date,
                CastType::DateTime(n) => Kind::DateTime(*n),
                CastType::Time(n) => Kind::Time(*n),
                CastType::Json | CastType::Array(_) | CastType::Element(_) => Kind::Json,
            },
            Expr::Call(f, args, _) => f.kind(args, params),
        }
    }
}

fn arith_kind(op: ArithOp, a: Kind, b: Kind) -> Kind {
    use ArithOp::*;
    let number = |k| match k {
        Kind::Text | Kind::Bytes | Kind::Label | Kind::Json => Kind::Double,
        Kind::Null => Kind::Double,
        Kind::Date | Kind::DateTime(0) | Kind::Time(0) => Kind::Int,
        Kind::DateTime(n) | Kind::Time(n) => Kind::Decimal(n),
        Kind::Bit(_) => Kind::UInt,
        k => k,
    };
    let (a, b) = (number(a), number(b));
    let scale = |k| if let Kind::Decimal(s) = k { s } else { 0 };
    match op {
        BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => Kind::UInt,
        IntDiv if a == Kind::UInt || b == Kind::UInt => Kind::UInt,
        IntDiv => Kind::Int,
        _ if a == Kind::Double || b == Kind::Double => Kind::Double,
        Div => Kind::Decimal((scale(a) + decimal::DIVISION_DIGITS).min(30)),
        Mul if scale(a) + scale(b) > 0 => Kind::Decimal((scale(a) + scale(b)).min(30)),
        Mod if a == Kind::Int => {
            if scale(b) > 0 {
                b
            } else {
                Kind::Int
            }
        }
        _ => match (a, b) {
            (Kind::Decimal(x), Kind::Decimal(y)) => Kind::Decimal(x.max(y)),
            (Kind::Decimal(x), _) | (_, Kind::Decimal(x)) => Kind::Decimal(x),
            (Kind::UInt, _) | (_, Kind::UInt) if op != SignedSub => Kind::UInt,
            _ => Kind::Int,
        },
    }
}

/// What an expression is evaluated over.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub layout: &'a RowLayout,
    pub row: &'a [u8],
    /// Full layout and row for `VALUES(column)`.
    pub new_row: Option<(&'a RowLayout, &'a [u8])>,
    pub params: &'a [Datum<'a>],
    pub aggregates: &'a [Datum<'a>],
    /// Values of [`Expr::Given`].
    pub given: &'a [Datum<'a>],
    pub env: &'a Env,
}

impl<'a> Context<'a> {
    /// A row alone.
    pub fn of_row(layout: &'a RowLayout, row: &'a [u8], env: &'a Env) -> Context<'a> {
        Context { layout, row, new_row: None, params: &[], aggregates: &[], given: &[], env }
    }
}

/// What an expression that names no column is evaluated over.
pub fn without_row<'a>(params: &'a [Datum<'a>], env: &'a Env) -> Context<'a> {
    static EMPTY: OnceLock<RowLayout> = OnceLock::new();
    let layout = EMPTY.get_or_init(|| RowLayout::new([]));
    Context { layout, row: &[], new_row: None, params, aggregates: &[], given: &[], env }
}
