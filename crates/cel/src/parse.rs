//! From words to a tree, by descent. Nesting is bounded, so neither this nor any walk over the tree can run out of stack.

use std::sync::Arc;

use crate::Problem;
use crate::ast::{Expr, Fold, Literal, MAX_DEPTH, Macro, Node};
use crate::check::Declarations;
use crate::escape;
use crate::lex::{Token, lex};

/// Words that the language keeps for itself.
pub const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Reads a whole expression, which may use what is declared.
pub fn parse(source: &str, declarations: &Declarations) -> Result<Expr, Problem> {
    let Declarations { escaped_fields: unescape, builds_objects, binds, .. } = *declarations;
    let mut parser = Parser { tokens: lex(source)?, next: 0, nesting: 0, unescape, builds_objects, binds };
    let expr = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(Problem::new(
            parser.at(),
            format!("Syntax error: extraneous input '{}' expecting <EOF>", parser.word()),
        )),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    nesting: usize,
    /// Fields may be spelled with escapes.
    unescape: bool,
    /// Objects may be built, and there are functions for that.
    builds_objects: bool,
    binds: bool,
}

/// How tightly an operator of two sides binds, and the name of its function.
fn operator(token: &Token) -> Option<(u8, &'static str)> {
    Some(match token {
        Token::Sign("||") => (1, "_||_"),
        Token::Sign("&&") => (2, "_&&_"),
        Token::Sign("<") => (3, "_<_"),
        Token::Sign("<=") => (3, "_<=_"),
        Token::Sign(">") => (3, "_>_"),
        Token::Sign(">=") => (3, "_>=_"),
        Token::Sign("==") => (3, "_==_"),
        Token::Sign("!=") => (3, "_!=_"),
        Token::Ident(word) if &**word == "in" => (3, "@in"),
        Token::Sign("+") => (4, "_+_"),
        Token::Sign("-") => (4, "_-_"),
        Token::Sign("*") => (5, "_*_"),
        Token::Sign("/") => (5, "_/_"),
        Token::Sign("%") => (5, "_%_"),
        _ => return None,
    })
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn at(&self) -> usize {
        self.tokens[self.next].0
    }

    fn take(&mut self) -> Token {
        let token = self.tokens[self.next].1.clone();
        if token != Token::End {
            self.next += 1;
        }
        token
    }

    fn accept(&mut self, sign: &'static str) -> bool {
        let found = *self.peek() == Token::Sign(sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Problem> {
        if self.accept(sign) {
            return Ok(());
        }
        match self.peek() {
            Token::End => Err(Problem::new(self.at(), format!("Syntax error: missing '{sign}' at '<EOF>'"))),
            _ => Err(self.unexpected()),
        }
    }

    /// What is next, as errors show it.
    fn word(&self) -> String {
        match self.peek() {
            Token::End => "<EOF>".to_owned(),
            Token::Ident(word) => word.to_string(),
            Token::Sign(sign) => (*sign).to_owned(),
            Token::Literal(Literal::Null) => "null".to_owned(),
            Token::Literal(Literal::Bool(truth)) => truth.to_string(),
            Token::Literal(Literal::Int(number)) => number.to_string(),
            Token::Literal(literal) => format!("{literal:?}"),
        }
    }

    fn unexpected(&self) -> Problem {
        let problem = if *self.peek() == Token::End { "mismatched" } else { "extraneous" };
        Problem::new(self.at(), format!("Syntax error: {problem} input '{}'", self.word()))
    }

    /// Something to compute with is missing.
    fn no_operand(&self) -> Problem {
        let wanted = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
        // Whether a word is too many or something is missing shows in what comes after it.
        let problem = match self.tokens.get(self.next + 1) {
            Some((_, Token::Literal(_) | Token::Sign("[" | "{" | "(" | "." | "-" | "!"))) => "extraneous",
            Some((_, Token::Ident(word))) if &**word != "in" => "extraneous",
            _ => "mismatched",
        };
        Problem::new(self.at(), format!("Syntax error: {problem} input '{}' expecting {wanted}", self.word()))
    }

    fn node(&self, at: usize, node: Node) -> Result<Expr, Problem> {
        let depth = 1 + node.children().map(|child| child.depth).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(too_deep(at));
        }
        Ok(Expr { at, depth, node })
    }

    fn call(&self, at: usize, function: &str, args: Vec<Expr>) -> Result<Expr, Problem> {
        self.node(at, Node::Call { function: function.into(), target: None, args })
    }

    fn expression(&mut self) -> Result<Expr, Problem> {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return Err(too_deep(self.at()));
        }
        let condition = self.binary(1)?;
        let at = self.at();
        let expr = if self.accept("?") {
            let yes = self.binary(1)?;
            self.expect(":")?;
            let no = self.expression()?;
            self.call(at, "_?_:_", vec![condition, yes, no])?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(expr)
    }

    /// Operators that bind at least this tightly, by climbing.
    fn binary(&mut self, least: u8) -> Result<Expr, Problem> {
        let mut left = self.unary()?;
        while let Some((strength, function)) = operator(self.peek()).filter(|(strength, _)| *strength >= least) {
            let at = self.at();
            self.take();
            let right = self.binary(strength + 1)?;
            left = self.call(at, function, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Problem> {
        let at = self.at();
        let (mut nots, mut minuses) = (0, 0);
        while self.accept("!") {
            nots += 1;
        }
        while nots == 0 && self.accept("-") {
            minuses += 1;
        }
        let number = match self.peek() {
            Token::Literal(Literal::Int(value)) if minuses % 2 == 1 => Some(Literal::Int(value.wrapping_neg())),
            Token::Literal(Literal::Double(value)) if minuses % 2 == 1 => Some(Literal::Double(-value)),
            Token::Literal(Literal::Int(i64::MIN)) => return Err(Problem::new(self.at(), "invalid int literal")),
            _ => None,
        };
        if let Some(number) = number {
            self.take();
            let literal = self.node(at, Node::Literal(number))?;
            return self.members(literal);
        }
        let operand = self.primary()?;
        let operand = self.members(operand)?;
        if nots % 2 == 1 {
            return self.call(at, "!_", vec![operand]);
        }
        if minuses % 2 == 1 { self.call(at, "-_", vec![operand]) } else { Ok(operand) }
    }

    fn members(&mut self, mut expr: Expr) -> Result<Expr, Problem> {
        loop {
            let at = self.at();
            if self.accept(".") {
                let name = self.name().map_err(|problem| {
                    let word = if *self.peek() == Token::End { String::new() } else { self.word() };
                    Problem::new(problem.at, format!("Syntax error: no viable alternative at input '.{word}'"))
                })?;
                // A call is recognized by its bracket.
                let open = self.at();
                expr = if self.accept("(") {
                    let args = self.arguments(")")?;
                    self.method(open, expr, &name, args)?
                } else {
                    self.select(at, expr, name, false)?
                };
            } else if self.accept(".?") {
                let name = self.name()?;
                expr = self.select(at, expr, name, true)?;
            } else if self.accept("[") {
                let index = self.expression()?;
                self.expect("]")?;
                expr = self.call(at, "_[_]", vec![expr, index])?;
            } else if self.accept("[?") {
                let index = self.expression()?;
                self.expect("]")?;
                expr = self.call(at, "_[?_]", vec![expr, index])?;
            } else if matches!(self.peek(), Token::Sign("{" | "{?")) && dotted(&expr).is_some() {
                let name: Arc<str> = dotted(&expr).unwrap_or_default().into();
                let fields = self.fields()?;
                expr = self.node(at, Node::Struct { name, fields })?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn name(&mut self) -> Result<Arc<str>, Problem> {
        match self.peek().clone() {
            Token::Ident(word) if &*word != "in" => {
                self.take();
                Ok(word)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn arguments(&mut self, close: &'static str) -> Result<Vec<Expr>, Problem> {
        let mut args = Vec::new();
        while !self.accept(close) {
            args.push(self.expression()?);
            if !self.accept(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, Problem> {
        let at = self.at();
        match self.peek().clone() {
            Token::Literal(literal) => {
                self.take();
                self.node(at, Node::Literal(literal))
            }
            Token::Sign(".") => {
                self.take();
                let name = self.name()?;
                self.node(at, Node::Ident(name))
            }
            Token::Ident(word) if &*word == "in" => Err(self.no_operand()),
            Token::Ident(word) => {
                self.take();
                let open = self.at();
                if self.accept("(") {
                    let args = self.arguments(")")?;
                    return self.function(open, &word, args);
                }
                if RESERVED.contains(&&*word) {
                    return Err(Problem::new(at, format!("reserved identifier: {word}")));
                }
                self.node(at, Node::Ident(word))
            }
            Token::Sign("(") => {
                self.take();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[" | "[?") => self.list(at),
            Token::Sign("{" | "{?") => self.map(at),
            _ => Err(self.no_operand()),
        }
    }

    fn list(&mut self, at: usize) -> Result<Expr, Problem> {
        let mut items = Vec::new();
        let mut optional = self.take() == Token::Sign("[?");
        // A comma alone is an empty list too.
        if !optional && self.accept(",") {
            self.expect("]")?;
            return self.node(at, Node::List(items));
        }
        while optional || !self.accept("]") {
            let marked = optional || self.accept("?");
            optional = false;
            items.push((self.expression()?, marked));
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        self.node(at, Node::List(items))
    }

    fn map(&mut self, at: usize) -> Result<Expr, Problem> {
        let mut entries = Vec::new();
        let mut optional = self.take() == Token::Sign("{?");
        if !optional && self.accept(",") {
            self.expect("}")?;
            return self.node(at, Node::Map(entries));
        }
        while optional || !self.accept("}") {
            let marked = optional || self.accept("?");
            optional = false;
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, marked));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        self.node(at, Node::Map(entries))
    }

    fn fields(&mut self) -> Result<Vec<(Arc<str>, Expr, bool)>, Problem> {
        let mut fields = Vec::new();
        let mut optional = self.take() == Token::Sign("{?");
        while optional || !self.accept("}") {
            let marked = optional || self.accept("?");
            optional = false;
            let name = self.name()?;
            self.expect(":")?;
            fields.push((name, self.expression()?, marked));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(fields)
    }

    /// A call without a target: `has` is a macro.
    fn function(&self, at: usize, name: &str, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        if name != "has" || args.len() != 1 {
            return self.call(at, name, args);
        }
        match args.pop() {
            // It is recognized by its bracket, as calls are.
            Some(Expr { node: Node::Select { operand, field, optional: false }, .. }) => {
                self.node(at, Node::Has { operand, field })
            }
            other => Err(Problem::new(other.map_or(at, |arg| arg.at), "invalid argument to has() macro")),
        }
    }

    fn select(&self, at: usize, operand: Expr, name: Arc<str>, optional: bool) -> Result<Expr, Problem> {
        let unescaped = escape::unescape(&name).filter(|_| self.unescape).map(|plain| plain.into());
        let field = unescaped.unwrap_or(name);
        self.node(at, Node::Select { operand: Box::new(operand), field, optional })
    }

    /// A call on a target: a macro, a function of a namespace (`sets.contains`), or a method.
    fn method(&self, at: usize, target: Expr, name: &str, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let of_cel = matches!(&target.node, Node::Ident(before) if &**before == "cel");
        if self.binds && of_cel && name == "bind" && args.len() == 3 {
            if !matches!(args[0].node, Node::Ident(_)) {
                let message = "cel.bind() variable names must be simple identifiers";
                return Err(Problem::new(args[0].at, message));
            }
            let bound = args.remove(1);
            return self.comprehension(at, Fold::Bind, bound, args, 1, false);
        }
        let fold = match (name, args.len()) {
            ("all", 2 | 3) => Some((Fold::All, args.len() - 1, false)),
            ("exists", 2 | 3) => Some((Fold::Exists, args.len() - 1, false)),
            ("exists_one" | "existsOne", 2 | 3) => Some((Fold::ExistsOne, args.len() - 1, false)),
            ("map", 2 | 3) => Some((Fold::Map, 1, args.len() == 3)),
            ("filter", 2) => Some((Fold::Filter, 1, false)),
            ("transformList", 3 | 4) => Some((Fold::Map, 2, args.len() == 4)),
            ("transformMap", 3 | 4) => Some((Fold::TransformMap, 2, args.len() == 4)),
            ("transformMapEntry", 3 | 4) => Some((Fold::TransformMapEntry, 2, args.len() == 4)),
            ("sortBy", 2) => Some((Fold::SortBy, 1, false)),
            ("optMap", 2) => Some((Fold::OptMap, 1, false)),
            ("optFlatMap", 2) => Some((Fold::OptFlatMap, 1, false)),
            _ => None,
        };
        if let Some((fold, names, filtered)) = fold {
            return self.comprehension(at, fold, target, args, names, filtered);
        }
        // `ip.isCanonical(x)`: a function whose name has a dot, unless there is a variable of that name, which the checker sees.
        let whole = dotted(&target).map(|before| format!("{before}.{name}"));
        let known = |whole: &String| {
            crate::signatures::is_namespaced(whole) && (self.builds_objects || !whole.starts_with("jsonpatch."))
        };
        if let Some(whole) = whole.filter(known) {
            return self.call(at, &whole, args);
        }
        self.node(at, Node::Call { function: name.into(), target: Some(Box::new(target)), args })
    }

    fn comprehension(
        &self,
        at: usize,
        fold: Fold,
        range: Expr,
        args: Vec<Expr>,
        count: usize,
        filtered: bool,
    ) -> Result<Expr, Problem> {
        let mut args = args.into_iter();
        let mut names = Vec::new();
        for arg in args.by_ref().take(count) {
            match arg.node {
                Node::Ident(name) => names.push(name),
                _ => return Err(Problem::new(arg.at, "argument must be a simple name")),
            }
        }
        let filter = if filtered { args.next() } else { None };
        let body = args.next().ok_or_else(|| Problem::new(at, "argument must be a simple name"))?;
        self.node(at, Node::Macro(Box::new(Macro { fold, range, names, filter, body })))
    }
}

fn too_deep(at: usize) -> Problem {
    Problem::new(at, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

/// `a.b.c`, if the expression is that and nothing else.
fn dotted(expr: &Expr) -> Option<String> {
    match &expr.node {
        Node::Ident(name) => Some(name.to_string()),
        Node::Select { operand, field, optional: false } => Some(format!("{}.{field}", dotted(operand)?)),
        _ => None,
    }
}
