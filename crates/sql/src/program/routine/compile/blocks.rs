//! BEGIN ... END, and what is declared in it: variables, conditions, handlers, cursors.

use apus_types::Column;

use super::{Compiler, column, sql_texts::find_into};
use crate::{
    errors::{self, Result},
    plan,
    program::routine::{
        code::{Block, Handler, Place, Step, Text},
        failures,
    },
};

impl<'t> Compiler<'t> {
    pub(super) fn begin(&mut self, label: Option<String>) -> Result<()> {
        self.t.expect("begin")?;
        let outer = self.block;
        let before = (self.names.clone(), self.conditions.len(), self.cursors.len(), self.program.cursors.len());
        self.open_label(label, None);
        let block = self.program.blocks.len();
        self.program.blocks.push(Block { parent: Some(outer), handlers: Vec::new() });
        let mut exits = Vec::new();
        let mut declared =
            Declared { variables: self.program.variables.len(), conditions: before.1, cursors: before.2, phase: 0 };
        while self.t.word("declare") {
            self.declare(block, &mut declared, &mut exits)?;
            self.t.expect_symbol(';')?;
        }
        self.block = block;
        self.statements_or_none(&["end"])?;
        self.t.expect("end")?;
        self.block = outer;
        exits.into_iter().for_each(|exit| self.land(exit));
        self.close_label()?;
        let cursors = before.3..self.program.cursors.len();
        if !cursors.is_empty() {
            self.push(Step::CloseAll(cursors));
        }
        self.names = before.0;
        self.conditions.truncate(before.1);
        self.cursors.truncate(before.2);
        Ok(())
    }

    fn declare(&mut self, block: usize, declared: &mut Declared, exits: &mut Vec<usize>) -> Result<()> {
        let handler = ["continue", "exit", "undo"].into_iter().find(|word| self.t.peek_word(word));
        if let Some(kind) = handler.filter(|_| self.t.second_word("handler")) {
            self.t.skip();
            self.t.skip();
            declared.phase = 2;
            return self.handler(block, kind, exits);
        }
        if self.t.second_word("cursor") {
            let name = self.t.identifier()?;
            self.t.skip();
            self.t.expect("for")?;
            if declared.phase == 2 {
                return Err(failures::cursor_late());
            }
            declared.phase = 1;
            if self.cursors[declared.cursors..].iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                return Err(failures::cursor_twice(&name));
            }
            let text = self.text_of_statement()?;
            let begins = ["select", "with", "table", "values", "("];
            if !begins.iter().any(|word| text.sql.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word))) {
                return Err(errors::syntax(&text.sql));
            }
            if find_into(&text.sql).is_some() {
                return Err(errors::cursor_with_into());
            }
            plan::syntax::parse(&text.sql)?;
            self.cursors.push((name, self.program.cursors.len()));
            self.program.cursors.push(text);
            return Ok(());
        }
        if declared.phase > 0 {
            return Err(failures::variable_late());
        }
        if self.t.second_word("condition") {
            let name = self.t.identifier()?;
            self.t.skip();
            self.t.expect("for")?;
            if self.conditions[declared.conditions..].iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                return Err(failures::condition_twice(&name));
            }
            let condition = self.condition(false)?;
            self.conditions.push((name, condition));
            return Ok(());
        }
        self.variables(declared)
    }

    /// `a, b INT DEFAULT 1`.
    pub(super) fn variables(&mut self, declared: &Declared) -> Result<()> {
        let mut names = Vec::new();
        loop {
            let name = self.t.identifier()?;
            let is_twice = names.iter().any(|known: &String| known.eq_ignore_ascii_case(&name));
            if is_twice || self.names.has_since(declared.variables, &name) {
                return Err(failures::variable_twice(&name));
            }
            names.push(name);
            if !self.t.symbol(',') {
                break;
            }
        }
        let column = column(self.t, &names[0], self.default)?;
        // The default is computed before its variables are there.
        let value = if self.t.word("default") { Some(self.expression(&[])?) } else { None };
        let of_name = |name: &String| Column { name: name.clone(), ..column.clone() };
        let places: Vec<Place> =
            names.iter().map(|name| self.variable(name.clone(), Some(of_name(name)))).collect::<Result<_>>()?;
        match value {
            None => _ = self.push(Step::Clear(places)),
            Some(value) => {
                for place in places {
                    self.push(Step::Assign(place, Text::new(value.sql.clone(), &value.names)));
                }
            }
        }
        Ok(())
    }

    fn handler(&mut self, block: usize, kind: &str, exits: &mut Vec<usize>) -> Result<()> {
        if kind == "undo" {
            return Err(self.t.error());
        }
        self.t.expect("for")?;
        let mut conditions = Vec::new();
        loop {
            let condition = self.condition(true)?;
            let known = self.program.blocks[block].handlers.iter().flat_map(|handler| &handler.conditions);
            if known.chain(&conditions).any(|known| *known == condition) {
                return Err(failures::handler_twice());
            }
            conditions.push(condition);
            if !self.t.symbol(',') {
                break;
            }
        }
        let over = self.push(Step::Jump(0));
        let labels = std::mem::take(&mut self.labels);
        let body = self.here();
        let within = self.within.replace(body);
        self.statement()?;
        self.within = within;
        self.labels = labels;
        if kind == "continue" {
            self.push(Step::Resume);
        } else {
            exits.push(self.push(Step::Exit { to: 0, within }));
        }
        self.land(over);
        self.program.blocks[block].handlers.push(Handler { conditions, body });
        Ok(())
    }

    pub(super) fn cursor(&mut self) -> Result<usize> {
        let name = self.t.identifier()?;
        let found = self.cursors.iter().rev().find(|(known, _)| known.eq_ignore_ascii_case(&name));
        found.map(|(_, cursor)| *cursor).ok_or_else(|| failures::no_cursor(&name))
    }
}

/// What there was in view, or in the program, before the DECLAREs of a block.
pub(super) struct Declared {
    pub(super) variables: usize,
    pub(super) conditions: usize,
    pub(super) cursors: usize,
    /// 1 behind a cursor, 2 behind a handler.
    phase: u8,
}
