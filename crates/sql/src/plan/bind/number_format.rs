//! Texts that are made of columns whose numbers do not look as others do: `CONCAT(z)` of one with ZEROFILL, or of a DOUBLE(8,2).
//!
//! Where an expression makes a text of a number, a cast to [`CastType::Faced`] is put around such a column; everywhere else it is the number. As in MySQL a choice
//! by IF, CASE or NULLIF is looked through, one by IFNULL or COALESCE is not, and what is computed (also MIN, MAX and the value of a subquery) looks as its type does.

use apus_types::ColumnType;
use sqlparser::ast;

use super::{Builder, Expr, func::Func, function::call, is_any_value};
use crate::{
    errors::Result,
    expr::{CastType, Kind},
    value::{
        datum::Datum,
        number_format::{self, Face},
    },
};

/// What it makes of its arguments depends on how they look.
fn reads_texts(f: Func) -> bool {
    use Func::*;
    matches!(
        f,
        Concat
            | ConcatWs
            | Length
            | CharLength
            | BitLength
            | Substring
            | SubstringIndex
            | Left
            | Right
            | Upper
            | Lower
            | Trim
            | LTrim
            | RTrim
            | Replace
            | LPad
            | RPad
            | Instr
            | Locate
            | Reverse
            | Repeat
            | Insert
            | Ascii
            | Ord
            | Soundex
            | Quote
            | Elt
            | MakeSet
            | ExportSet
            | FindInSet
            | Strcmp
            | Md5
            | Sha1
            | Sha2
            | Crc32
            | ToBase64
            | FromBase64
            | Unhex
            | RegexpLike
            | RegexpReplace
            | RegexpSubstr
            | RegexpInstr
            | StrToDate
    )
}

impl Builder<'_> {
    /// How a column or variable looks; `None`: as all numbers of its type, or it is none.
    pub(super) fn face_of(&self, e: &Expr) -> Option<Face> {
        if e.column_type() == Some(ColumnType::Year) {
            return Some(number_format::YEAR);
        }
        match (e, &self.scope, self.planner) {
            (Expr::Column(c) | Expr::NewColumn(c), Some(scope), _) => Face::of(scope.of_slot(c.slot)?.column(c.slot)),
            (Expr::Column(c) | Expr::NewColumn(c), None, _) => Face::of(self.table?.columns.get(usize::from(c.slot))?),
            (Expr::Given(at, _, true), _, Some(planner)) => planner.frames.face_of_given(*at),
            (Expr::Variable(place, _), ..) => self.names?.at(*place)?.face,
            _ => None,
        }
    }

    fn has_face(&self, e: &Expr) -> bool {
        match e {
            Expr::Call(Func::If, args, _) => args.iter().skip(1).any(|e| self.has_face(e)),
            Expr::Call(Func::NullIf, args, _) => args.first().is_some_and(|e| self.has_face(e)),
            Expr::Case { whens, otherwise, .. } if !is_any_value(e) => {
                whens.iter().map(|(_, then)| then).chain(otherwise.as_deref()).any(|e| self.has_face(e))
            }
            Expr::Cast(chosen, CastType::Chosen { .. }) => {
                matches!(**chosen, Expr::Call(Func::If, ..) | Expr::Case { .. }) && self.has_face(chosen)
            }
            e => self.face_of(e).is_some(),
        }
    }

    /// What is made a text.
    pub(super) fn as_text(&self, e: Expr) -> Expr {
        if !self.has_face(&e) {
            return e;
        }
        match e {
            Expr::Call(Func::If, mut args, _) => {
                let choices = self.texts(args.split_off(1));
                args.extend(choices);
                call(Func::If, args)
            }
            Expr::Call(Func::NullIf, args, collation) => match <[Expr; 2]>::try_from(args) {
                Ok([value, other]) => Expr::Case {
                    operand: Some(Box::new(value.clone())),
                    whens: vec![(other, Expr::Const(Datum::Null))],
                    otherwise: Some(Box::new(self.as_text(value))),
                    collation,
                },
                Err(args) => Expr::Call(Func::NullIf, args, collation),
            },
            Expr::Case { operand, whens, otherwise, collation } => {
                let whens = whens.into_iter().map(|(when, then)| (when, self.as_text(then))).collect();
                let otherwise = otherwise.map(|e| Box::new(self.as_text(*e)));
                Expr::Case { operand, whens, otherwise, collation }
            }
            Expr::Cast(chosen, CastType::Chosen { .. }) => self.as_text(*chosen),
            e => match self.face_of(&e) {
                Some(face) => Expr::Cast(Box::new(e), CastType::Faced(face)),
                None => e,
            },
        }
    }

    pub(super) fn text_of(&mut self, e: &ast::Expr) -> Result<Expr> {
        let built = self.build(e)?;
        Ok(self.as_text(built))
    }

    /// Whether a CASE gives texts, and not as many kinds of numbers.
    pub(super) fn is_text_chosen(&self, whens: &[(Expr, Expr)], otherwise: Option<&Expr>) -> bool {
        let choices = whens.iter().map(|(_, then)| then).chain(otherwise);
        choices.fold(Kind::Null, |kind, e| kind.unify(e.kind(&self.param_kinds))).is_text()
    }

    /// As [`Builder::as_text`], of each.
    pub(super) fn texts(&self, list: Vec<Expr>) -> Vec<Expr> {
        list.into_iter().map(|e| self.as_text(e)).collect()
    }

    /// The arguments of a function, as texts where it reads these.
    pub(super) fn read_by(&self, f: Func, args: Vec<Expr>) -> Vec<Expr> {
        let is_choice = matches!(f, Func::If | Func::IfNull | Func::Coalesce | Func::Greatest | Func::Least);
        match reads_texts(f) || is_choice && f.kind(&args, &self.param_kinds).is_text() {
            true => self.texts(args),
            false => args,
        }
    }
}
