//! A call under way: the values of its variables, what is stored into them and read from them.

use std::{collections::BTreeSet, rc::Rc};

use apus_types::{Column, ColumnType};

use crate::{
    errors::Result,
    expr::{
        Kind,
        assign::{self, Assign},
        eval::char_count,
    },
    parse::token::{Token, Tokens},
    program::routine::{
        code::{Place, Program, Target, Text, Variable},
        conditions::Handling,
        failures,
    },
    session::{Session, warnings::Warning},
    value::datum::Datum,
};

/// A call under way.
#[derive(Debug)]
pub struct Frame {
    pub(crate) program: Rc<Program>,
    /// For errors.
    pub(super) name: String,
    pub(crate) values: Vec<Datum<'static>>,
    /// Of the values, as plans are made for them.
    pub(super) kinds: Vec<Kind>,
    /// Rows of open cursors that were not fetched yet.
    pub(super) cursors: Vec<Option<std::vec::IntoIter<Vec<Datum<'static>>>>>,
    pub(crate) handling: Vec<Handling>,
    /// Parameters of a prepared CALL that it has given a value.
    given_out: Vec<Place>,
    /// Columns of NEW that a trigger has given a value.
    pub(crate) touched: BTreeSet<Place>,
    /// What the value of a function is called in messages about it, and what those were.
    pub(crate) returns_as: String,
    pub(crate) told: Vec<Warning>,
    /// A function has come to its RETURN.
    pub(crate) has_returned: bool,
}

impl Frame {
    pub fn new(program: Rc<Program>, name: String) -> Frame {
        let values = vec![Datum::Null; program.variables.len()];
        let cursors = program.cursors.iter().map(|_| None).collect();
        let kind = |variable: &Variable| variable.column.as_ref().map_or(Kind::Null, |column| Kind::of(column.ty));
        let kinds = program.variables.iter().map(kind).collect();
        let (handling, given_out, touched) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (returns_as, told, has_returned) = (String::new(), Vec::new(), false);
        Frame { program, name, values, kinds, cursors, handling, given_out, touched, returns_as, told, has_returned }
    }

    /// Only a variable without a type is the parameter of a prepared CALL.
    pub(super) fn note_given_out(&mut self, target: &Target) {
        if let Target::Variable(place) = target
            && self.program.variables[*place].column.is_none()
            && !self.given_out.contains(place)
        {
            self.given_out.push(*place);
        }
    }

    pub(crate) fn given_out(&self) -> impl Iterator<Item = (usize, Datum<'static>)> + '_ {
        self.given_out.iter().map(|place| (*place, self.values[*place].clone()))
    }

    /// The value of a column of NEW or OLD, as the row has it.
    pub(crate) fn load(&mut self, place: Place, value: Datum<'static>) {
        self.values[place] = value;
    }

    pub(crate) fn take_arguments(&mut self, session: &mut Session, values: Vec<Datum<'static>>) -> Result<()> {
        values.into_iter().enumerate().try_for_each(|(place, value)| self.store(session, place, value))
    }

    /// A definition that is not planned here, with the values of the variables that its query names.
    pub(super) fn with_values(&self, text: &Text) -> String {
        let t = Tokens::new(&text.sql);
        let is =
            |token: Option<&Token>, word: &str| matches!(token, Some(Token::Word(w)) if w.eq_ignore_ascii_case(word));
        let word = match () {
            () if t.peek_word("create") && t.second_word("table") => "select",
            () if t.peek_word("alter") => "schedule",
            () => return text.sql.clone(),
        };
        let Some(query) = (2..t.rest().len()).find(|at| is(t.ahead(*at), word)) else { return text.sql.clone() };
        t.with_replaced(|at, token| {
            let (Token::Word(name) | Token::Quoted(name)) = token else { return None };
            let (before, behind) = (t.ahead(at.checked_sub(1)?), t.ahead(at + 1));
            let point = Some(&Token::Symbol('.'));
            let is_other = is(before, "as")
                || is(before, "to")
                || before == point
                || behind == point
                || behind == Some(&Token::Symbol('('));
            let known = text.names.find(name).filter(|_| at > query && !is_other)?;
            Some(literal(&self.values[known.place]))
        })
    }

    /// The warnings of the step are for who calls.
    pub(crate) fn keep_told(&mut self, session: &mut Session) {
        self.told.append(&mut session.warnings);
    }

    pub(super) fn is_of_row(&self, place: Place) -> bool {
        self.program.rows.iter().any(|row| row.place == place)
    }

    /// In strict mode nothing that is warned of goes into a variable with a type.
    pub(super) fn check_warnings(&self, session: &Session, place: Place) -> Result<()> {
        let is_held = session.env.variables.strict && self.program.variables[place].column.is_some();
        match session.warnings.iter().find(|w| is_held && w.level == "Warning") {
            Some(warning) => Err(warning.error()),
            None => Ok(()),
        }
    }

    /// Gives a variable a value of its type.
    pub(crate) fn store(&mut self, session: &mut Session, place: Place, value: Datum<'static>) -> Result<()> {
        let program = self.program.clone();
        let Some(column) = &program.variables[place].column else {
            self.kinds[place] = Kind::of_datum(&value);
            self.values[place] = value;
            return Ok(());
        };
        let renamed;
        let column = match program.returns == Some(place) {
            true => {
                renamed = Column { name: self.returns_as.clone(), ..column.clone() };
                &renamed
            }
            false => column,
        };
        let (strict, zone) = (session.env.variables.strict, session.env.zone());
        let a = Assign { row: 1, table: "", strict, zone, env: Some(&session.env), warns: false };
        let mut warnings = Vec::new();
        let is_of_row = self.is_of_row(place);
        if is_of_row {
            self.touched.insert(place);
        }
        let is_local = place >= program.parameters.len() && !is_of_row && program.returns != Some(place);
        if is_local && strict && is_longer(column.ty, &value) {
            return Err(failures::truncated(&column.name));
        }
        let converted = match strict {
            true => assign::assign(column, value, a)?,
            false => assign::assign_or_warn(column, value, a, &mut warnings)?,
        };
        self.values[place] = match converted {
            Datum::Null => Datum::Null,
            converted => Datum::of_column(column.ty, assign::stored(column.ty, &converted), zone).into_owned(),
        };
        warnings.extend(session.env.take_notes());
        warnings.iter().for_each(|e| session.warn_error(e));
        session.tell_remarks();
        Ok(())
    }
}

/// A text that a variable has no room for, also where what is left out are spaces.
fn is_longer(ty: ColumnType, value: &Datum<'_>) -> bool {
    match (ty, value) {
        (ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. }, Datum::Text(text)) => {
            char_count(text) > usize::from(length)
        }
        _ => false,
    }
}

fn literal(value: &Datum<'_>) -> String {
    match value {
        Datum::Null => "NULL".to_owned(),
        Datum::Int(n) => format!("CAST({n} AS SIGNED)"),
        other => written(other),
    }
}

/// As a value of SET.
pub(super) fn written(value: &Datum<'_>) -> String {
    match value {
        Datum::Null => "NULL".to_owned(),
        number if number.is_number() => number.as_string(),
        other => format!("'{}'", other.as_string().replace('\\', "\\\\").replace('\'', "''")),
    }
}
