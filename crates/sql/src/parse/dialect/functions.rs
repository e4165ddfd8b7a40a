//! Calls whose arguments are no plain list: EXTRACT, POSITION, CAST, MATCH, JSON_VALUE and their like.

use sqlparser::{
    ast::{
        ArrayElemTypeDef, CastKind, CharacterLength, DataType, DateTimeField, Expr, ExtractSyntax, Function,
        FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Interval, ObjectName, Value,
    },
    dialect::{Dialect, MySqlDialect, Precedence},
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use super::{MATCH, Parsed};

/// A call of a function by name.
pub fn call_of(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}

/// Expressions in parentheses.
fn list(parser: &mut Parser) -> Parsed<Vec<Expr>> {
    parser.expect_token(&Token::LParen)?;
    let list = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(list)
}

/// `INTERVAL n unit`, or the function `INTERVAL(n, a, b, ...)`.
pub(super) fn interval(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::INTERVAL)?;
    let value = if parser.peek_token_ref().token == Token::LParen {
        let mut arguments = list(parser)?;
        if arguments.len() > 1 {
            return Ok(call_of("interval", arguments));
        }
        let mut value = Expr::Nested(Box::new(arguments.remove(0)));
        // Read on: parsing it again as an expression would take twice the time for each INTERVAL in it.
        while parser.get_next_precedence()? > 0 {
            let precedence = parser.get_next_precedence()?;
            value = parser.parse_infix(value, precedence)?;
        }
        Box::new(value)
    } else {
        Box::new(parser.parse_expr()?)
    };
    let unit = parser.parse_identifier()?;
    Ok(Expr::Interval(Interval {
        value,
        leading_field: Some(DateTimeField::Custom(unit)),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

pub(super) fn extract(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::EXTRACT)?;
    parser.expect_token(&Token::LParen)?;
    let field = DateTimeField::Custom(parser.parse_identifier()?);
    parser.expect_keyword(Keyword::FROM)?;
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Extract { field, expr, syntax: ExtractSyntax::From })
}

/// `POSITION(part IN text)`. The parser would try again without IN, in twice the time for each POSITION in it.
pub(super) fn position(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::POSITION)?;
    parser.expect_token(&Token::LParen)?;
    let between = MySqlDialect {}.prec_value(Precedence::Between);
    let expr = Box::new(parser.parse_subexpr(between)?);
    parser.expect_keyword(Keyword::IN)?;
    let r#in = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Position { expr, r#in })
}

/// `x [NOT] REGEXP pattern`, the pattern being any expression.
pub(super) fn regexp(parser: &mut Parser, expr: &Expr, precedence: u8) -> Option<Parsed<Expr>> {
    let is_regexp = |t: &Token| matches!(t, Token::Word(w) if matches!(w.keyword, Keyword::REGEXP | Keyword::RLIKE));
    let [first, second] = parser.peek_tokens::<2>();
    let negated = matches!(&first, Token::Word(w) if w.keyword == Keyword::NOT);
    if !is_regexp(if negated { &second } else { &first }) {
        return None;
    }
    if negated {
        parser.next_token();
    }
    parser.next_token();
    let pattern = parser.parse_subexpr(precedence);
    let expr = Box::new(expr.clone());
    Some(pattern.map(|pattern| Expr::RLike { negated, expr, pattern: Box::new(pattern), regexp: true }))
}

/// CAST, whose text may name the character set that it has anyway; to another one it is converted then.
pub(super) fn cast(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::CAST)?;
    parser.expect_token(&Token::LParen)?;
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_keyword(Keyword::AS)?;
    let data_type = parser.parse_data_type()?;
    let is_text = matches!(data_type, DataType::Char(_) | DataType::Character(_));
    if is_text && (parser.parse_keyword(Keyword::CHARSET) || parser.parse_keywords(&[Keyword::CHARACTER, Keyword::SET]))
    {
        let name = parser.parse_identifier()?;
        if parser.parse_keyword(Keyword::ARRAY) {
            parser.expect_token(&Token::RParen)?;
            // No array may have one; it is refused by the name of the set.
            let set = DataType::Custom(ObjectName::from(vec![name]), Vec::new());
            let data_type = DataType::Array(ArrayElemTypeDef::Qualified(Box::new(set), None));
            return Ok(Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None });
        }
        parser.expect_token(&Token::RParen)?;
        let cast = Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None };
        if name.value.eq_ignore_ascii_case("utf8mb4") {
            return Ok(cast);
        }
        let (expr, charset) = (Box::new(cast), Some(ObjectName::from(vec![name])));
        let (is_try, target_before_value, styles) = (false, false, Vec::new());
        return Ok(Expr::Convert { is_try, expr, data_type: None, charset, target_before_value, styles });
    }
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Cast { kind: CastKind::Cast, expr, data_type, format: None })
}

/// `CHAR(77, 121 USING utf8mb4)`.
pub(super) fn char_function(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_keyword(Keyword::CHAR)?;
    parser.expect_token(&Token::LParen)?;
    let args = parser.parse_comma_separated(Parser::parse_expr)?;
    let charset = if parser.parse_keyword(Keyword::USING) { Some(parser.parse_identifier()?) } else { None };
    parser.expect_token(&Token::RParen)?;
    let made = call_of("char", args);
    Ok(match charset {
        Some(name) if !name.value.eq_ignore_ascii_case("binary") => {
            let (is_try, target_before_value, styles) = (false, false, Vec::new());
            let (expr, charset) = (Box::new(made), Some(ObjectName::from(vec![name])));
            Expr::Convert { is_try, expr, data_type: None, charset, target_before_value, styles }
        }
        _ => made,
    })
}

/// `TRIM(BOTH FROM x)`: the form that does not say what to trim; the parser reads the others.
pub(super) fn trim_spaces(parser: &mut Parser) -> Option<Parsed<Expr>> {
    let [_, _, Token::Word(side), Token::Word(from)] = parser.peek_tokens::<4>() else { return None };
    let function = match side.keyword {
        Keyword::BOTH => "trim",
        Keyword::LEADING => "ltrim",
        Keyword::TRAILING => "rtrim",
        _ => return None,
    };
    if from.keyword != Keyword::FROM {
        return None;
    }
    for _ in 0..4 {
        parser.next_token();
    }
    let text = parser.parse_expr();
    Some(text.and_then(|text| parser.expect_token(&Token::RParen).map(|_| call_of(function, vec![text]))))
}

/// `MATCH (a, b) AGAINST ('words' IN BOOLEAN MODE)`, also without the first parentheses: the mode, the query and the columns as a call of ` match`.
pub(super) fn match_against(parser: &mut Parser) -> Parsed<Expr> {
    parser.parse_identifier()?;
    let in_parentheses = parser.consume_token(&Token::LParen);
    let columns = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
    if in_parentheses {
        parser.expect_token(&Token::RParen)?;
    }
    parser.expect_keyword(Keyword::AGAINST)?;
    parser.expect_token(&Token::LParen)?;
    let query = parser.parse_subexpr(MySqlDialect {}.prec_value(Precedence::Between))?;
    let is_boolean = parser.parse_keywords(&[Keyword::IN, Keyword::BOOLEAN, Keyword::MODE]);
    let _ = !is_boolean && parser.parse_keywords(&[Keyword::IN, Keyword::NATURAL, Keyword::LANGUAGE, Keyword::MODE]);
    let is_expanded = !is_boolean && parser.parse_keywords(&[Keyword::WITH, Keyword::QUERY, Keyword::EXPANSION]);
    parser.expect_token(&Token::RParen)?;
    let mode = if is_boolean {
        " in boolean mode"
    } else if is_expanded {
        " with query expansion"
    } else {
        ""
    };
    let column = |name: ObjectName| {
        let mut parts: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        if parts.len() == 1 { Expr::Identifier(parts.remove(0)) } else { Expr::CompoundIdentifier(parts) }
    };
    let mode = Expr::value(Value::SingleQuotedString(mode.to_owned()));
    Ok(call_of(MATCH, [mode, query].into_iter().chain(columns.into_iter().map(column)).collect()))
}

/// `GET_FORMAT(DATE, 'EUR')`: the first argument is a word.
pub(super) fn get_format(parser: &mut Parser) -> Parsed<Expr> {
    parser.parse_identifier()?;
    parser.expect_token(&Token::LParen)?;
    let kind = parser.parse_identifier()?.value;
    parser.expect_token(&Token::Comma)?;
    let format = parser.parse_expr()?;
    parser.expect_token(&Token::RParen)?;
    Ok(call_of("get_format", vec![Expr::value(Value::SingleQuotedString(kind)), format]))
}

/// `JSON_VALUE(document, path RETURNING type ... ON EMPTY ... ON ERROR)`: the type as a cast of NULL; what is given in place of a value as an expression, an error as a call
/// of ` error`.
pub(super) fn json_value(parser: &mut Parser) -> Parsed<Expr> {
    parser.parse_identifier()?;
    parser.expect_token(&Token::LParen)?;
    let document = parser.parse_expr()?;
    parser.expect_token(&Token::Comma)?;
    let path = parser.parse_expr()?;
    let null = || Expr::value(Value::Null);
    let mut returns = DataType::Char(Some(CharacterLength::IntegerLength { length: 512, unit: None }));
    if parser.parse_keyword(Keyword::RETURNING) {
        returns = parser.parse_data_type()?;
    }
    let (mut on_empty, mut on_error) = (null(), null());
    while parser.peek_token_ref().token != Token::RParen {
        let action = if parser.parse_keyword(Keyword::ERROR) {
            call_of(" error", Vec::new())
        } else if parser.parse_keyword(Keyword::DEFAULT) {
            parser.parse_expr()?
        } else {
            parser.expect_keyword(Keyword::NULL)?;
            null()
        };
        parser.expect_keyword(Keyword::ON)?;
        if parser.parse_keyword(Keyword::EMPTY) {
            on_empty = action;
        } else {
            parser.expect_keyword(Keyword::ERROR)?;
            on_error = action;
        }
    }
    parser.expect_token(&Token::RParen)?;
    let returns = Expr::Cast { kind: CastKind::Cast, expr: Box::new(null()), data_type: returns, format: None };
    Ok(call_of("json_value", vec![document, path, returns, on_empty, on_error]))
}
