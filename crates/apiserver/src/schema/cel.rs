//! CEL expressions: compiling, evaluating, and the words for what goes wrong.
//!
//! The engine is the `cel` crate with the Kubernetes function libraries of `kube-cel`. Expressions are kept as syntax
//! trees, not as the crate's programs, so that optional field selection (`self.?a.b`) can be mended on the way.

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};
use kube_cel::cel::objects::{Key, Opaque, OptionalValue};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use std::sync::Arc;

/// The name under which optional selection is registered; no source text can spell it.
const SELECT: &str = "@select";

/// Only the pages that are used cost anything.
const PARSER_STACK: usize = 64 << 20;

/// Evaluation recurses too, on the caller's stack.
const MAX_NESTING: usize = 40;

/// Ternaries nest without brackets.
const MAX_TERNARIES: usize = 40;

thread_local! {
    /// Holds the functions; made once per thread, because it may not be shared.
    static BASE: Context<'static> = base();
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    tree: IdedExpr,
    pub(crate) uses_old_self: bool,
}

/// The variables of the rules of one value. The engine copies values when they are bound, so this is done once for all
/// of them.
pub(crate) struct Scope<'a> {
    context: Context<'a>,
    old: Option<Cel>,
}

/// Runs something with `self` and `oldSelf` bound.
pub(crate) fn with_scope<R>(this: Cel, old: Option<Cel>, run: impl FnOnce(&Scope<'_>) -> R) -> R {
    BASE.with(|base| {
        let mut context = base.new_inner_scope();
        context.add_variable_from_value("self", this);
        if let Some(old) = &old {
            context.add_variable_from_value("oldSelf", old.clone());
        }
        run(&Scope { context, old })
    })
}

impl Expression {
    /// `Err` is the report that cel-go would give, as far as parsing and undeclared names go.
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        if too_deep(source) {
            let message = format!("expression recursion limit exceeded: {MAX_NESTING}");
            return Err(report(source, -1, 0, &message));
        }
        let mut tree = parse(source)?;
        if let Some(name) = BASE.with(|base| undeclared(&tree, base, &mut vec!["self", "oldSelf"])) {
            let at = source.find(&name).unwrap_or_default() as isize + 1;
            return Err(report(
                source,
                1,
                at,
                &format!("undeclared reference to '{name}' (in container '')"),
            ));
        }
        let uses_old_self = tree.references().has_variable("oldSelf");
        mend(&mut tree);
        Ok(Self { tree, uses_old_self })
    }

    /// With `optional_old`, `oldSelf` is an optional value that may be empty.
    pub(crate) fn evaluate(&self, scope: &Scope<'_>, optional_old: bool) -> Result<Cel, String> {
        let outcome = if optional_old && self.uses_old_self {
            let old = scope.old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            let mut context = scope.context.new_inner_scope();
            context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            context.resolve(&self.tree)
        } else {
            scope.context.resolve(&self.tree)
        };
        outcome.map_err(|error| explain(&error))
    }
}

/// Parses on a stack of its own: the parser takes some ten kilobytes per level, more than a worker has to give.
fn parse(source: &str) -> Result<IdedExpr, String> {
    let work = || {
        Parser::new().enable_optional_syntax(true).parse(&single_negations(source)).map_err(|errors| {
            let reports = errors.errors.iter().map(|e| report(source, e.pos.0, e.pos.1, &e.msg));
            reports.collect::<Vec<_>>().join("\n")
        })
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("could not start the parser: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the parser failed on this expression".to_string()))
    })
}

/// Blanks out double negations, which the parser takes for single ones. Columns stay as they are.
fn single_negations(source: &str) -> String {
    let mut out: Vec<char> = source.chars().collect();
    let mut before: Option<char> = None;
    let code = code_positions(&out);
    for (index, &at) in code.iter().enumerate() {
        let c = out[at];
        let Some(&next) = code.get(index + 1) else { break };
        // After an operand a minus is a subtraction.
        let operand =
            before.is_some_and(|b| b.is_alphanumeric() || matches!(b, '_' | ')' | ']' | '}' | '\'' | '"'));
        if matches!(c, '!' | '-') && out[next] == c && !operand {
            out[at] = ' ';
            out[next] = ' ';
        } else if out[at] != ' ' {
            before = Some(c);
        }
    }
    out.into_iter().collect()
}

/// Where in the source there is something that is neither blank nor inside a text. Quotes count.
fn code_positions(source: &[char]) -> Vec<usize> {
    let mut found = Vec::with_capacity(source.len());
    let mut quote: Option<char> = None;
    let mut at = 0;
    while at < source.len() {
        let c = source[at];
        match quote {
            Some(_) if c == '\\' => at += 1,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c.is_whitespace() => {}
            None => {
                quote = matches!(c, '\'' | '"').then_some(c);
                found.push(at);
            }
        }
        at += 1;
    }
    found
}

fn too_deep(source: &str) -> bool {
    let chars: Vec<char> = source.chars().collect();
    let (mut depth, mut deepest, mut ternaries) = (0usize, 0usize, 0usize);
    let mut before = ' ';
    for at in code_positions(&chars) {
        match chars[at] {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            // `.?` and `[?` are optional selection.
            '?' if !matches!(before, '.' | '[') => ternaries += 1,
            _ => {}
        }
        before = chars[at];
        deepest = deepest.max(depth);
    }
    deepest > MAX_NESTING || ternaries > MAX_TERNARIES
}

/// One of the libraries' functions on a text; `None` when it refuses.
pub(super) fn call(function: &str, text: &str) -> Option<Cel> {
    let argument = IdedExpr { id: 1, expr: Expr::Literal(LiteralValue::String(text.into())) };
    let call = CallExpr { func_name: function.to_string(), target: None, args: vec![argument] };
    BASE.with(|base| base.resolve(&IdedExpr { id: 0, expr: Expr::Call(call) })).ok()
}

fn base() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(SELECT, |target: Cel, field: Arc<String>| select(&target, &field));
    context.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> {
        Ok(Cel::Opaque(Arc::new(TypeName(type_name(&value)))))
    });
    for name in ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"] {
        context.add_variable_from_value(name, Cel::Opaque(Arc::new(TypeName(name))));
    }
    context
}

/// The type of a value, as a value: `type(self) == string`.
#[derive(Debug, PartialEq, Eq)]
struct TypeName(&'static str);

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::Bool(_) => "bool",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Null => "null_type",
        _ => "dyn",
    }
}

/// A field that may be absent, of a value that may itself be optional.
fn select(target: &Cel, field: &str) -> Result<Cel, ExecutionError> {
    if let Ok(optional) = <&OptionalValue>::try_from(target) {
        return match optional.value() {
            Some(inner) => select(inner, field),
            None => Ok(Cel::Opaque(Arc::new(OptionalValue::none()))),
        };
    }
    let Cel::Map(map) = target else { return Err(ExecutionError::NoSuchOverload) };
    let found = map.map.get(&Key::String(Arc::new(field.to_string())));
    Ok(Cel::Opaque(Arc::new(found.cloned().map_or_else(OptionalValue::none, OptionalValue::of))))
}

/// Replaces optional selection, and plain selection from its result, by a call of [`SELECT`].
fn mend(expr: &mut IdedExpr) {
    each_child(expr, &mut |child| mend(child));
    match &mut expr.expr {
        Expr::Call(call) if call.func_name == "_?._" && call.args.len() == 2 => {
            call.func_name = SELECT.to_string();
        }
        // As a method, a function passes on what went wrong with its argument; as a plain call it hides it.
        Expr::Call(call)
            if call.target.is_none() && call.args.len() == 1 && is_conversion(&call.func_name) =>
        {
            call.target = call.args.pop().map(Box::new);
        }
        Expr::Select(select) if !select.test && is_select(&select.operand) => {
            let field = IdedExpr {
                id: expr.id,
                expr: Expr::Literal(LiteralValue::String(select.field.as_str().into())),
            };
            let operand = std::mem::take(&mut *select.operand);
            expr.expr = Expr::Call(CallExpr {
                func_name: SELECT.to_string(),
                target: None,
                args: vec![operand, field],
            });
        }
        _ => {}
    }
}

fn is_conversion(name: &str) -> bool {
    matches!(name, "bytes" | "double" | "int" | "size" | "string" | "uint")
}

fn is_select(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Call(call) if call.func_name == SELECT || call.func_name == "_[?_]")
}

fn each_child(expr: &mut IdedExpr, visit: &mut dyn FnMut(&mut IdedExpr)) {
    match &mut expr.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| visit(target));
            call.args.iter_mut().for_each(visit);
        }
        Expr::Comprehension(c) => {
            let c = &mut **c;
            for part in
                [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
            {
                visit(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                match &mut entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        visit(&mut entry.key);
                        visit(&mut entry.value);
                    }
                    EntryExpr::StructField(field) => visit(&mut field.value),
                }
            }
        }
        Expr::Select(select) => visit(&mut select.operand),
        _ => {}
    }
}

/// The first name that means nothing. `known` are the variables in scope.
fn undeclared<'e>(expr: &'e IdedExpr, base: &Context<'_>, known: &mut Vec<&'e str>) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => {
            let fine = name.starts_with('@') || known.contains(&name.as_str()) || is_known(expr, base);
            (!fine).then(|| name.clone())
        }
        Expr::Call(call) => {
            let qualified = call.target.as_deref().and_then(|target| match &target.expr {
                Expr::Ident(prefix) => Some(format!("{prefix}.{}", call.func_name)),
                _ => None,
            });
            let by_prefix = qualified.is_some_and(|name| has_function(&name, base));
            if !by_prefix {
                if !has_function(&call.func_name, base) {
                    return Some(call.func_name.clone());
                }
                if let Some(found) = call.target.as_deref().and_then(|t| undeclared(t, base, known)) {
                    return Some(found);
                }
            }
            call.args.iter().find_map(|arg| undeclared(arg, base, known))
        }
        Expr::Comprehension(c) => undeclared(&c.iter_range, base, known).or_else(|| {
            let depth = known.len();
            known.extend([c.iter_var.as_str(), c.accu_var.as_str()]);
            known.extend(c.iter_var2.as_deref());
            let parts = [&c.accu_init, &c.loop_cond, &c.loop_step, &c.result];
            let found = parts.into_iter().find_map(|part| undeclared(part, base, known));
            known.truncate(depth);
            found
        }),
        Expr::List(list) => list.elements.iter().find_map(|item| undeclared(item, base, known)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                undeclared(&entry.key, base, known).or_else(|| undeclared(&entry.value, base, known))
            }
            EntryExpr::StructField(field) => undeclared(&field.value, base, known),
        }),
        Expr::Select(select) => undeclared(&select.operand, base, known),
        _ => None,
    }
}

/// Operators are the engine's own; of all other functions the engine is asked, by a call without arguments.
fn has_function(name: &str, base: &Context<'_>) -> bool {
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return true;
    }
    let call = CallExpr { func_name: name.to_string(), target: None, args: Vec::new() };
    is_known(&IdedExpr { id: 0, expr: Expr::Call(call) }, base)
}

fn is_known(expr: &IdedExpr, base: &Context<'_>) -> bool {
    !matches!(base.resolve(expr), Err(ExecutionError::UndeclaredReference(_)))
}

/// A compiler's message with the place it is about.
fn report(source: &str, line: isize, column: isize, message: &str) -> String {
    let text = source.lines().nth((line - 1).max(0) as usize).unwrap_or_default();
    let dots = ".".repeat((column - 1).max(0) as usize);
    format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}^")
}

/// An evaluation error in the words of cel-go.
fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_string(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_string(),
        ExecutionError::Overflow(..) => "integer overflow".to_string(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::FunctionError { function, .. }
            if matches!(function.as_str(), "int" | "uint" | "double") =>
        {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => "no such overload".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bind::bind_value;
    use super::*;
    use serde_json::{Value, json};

    fn run(source: &str, value: Value) -> Result<Cel, String> {
        let expression = Expression::compile(source).unwrap();
        with_scope(bind_value(None, &value), None, |scope| expression.evaluate(scope, false))
    }

    #[test]
    fn optional_fields() {
        for (source, value, expected) in [
            ("self.?a.orValue('x') == 'x'", json!({}), true),
            ("self.?a.orValue('x') == 'y'", json!({"a": "y"}), true),
            ("self.?a.?b.hasValue()", json!({"a": {}}), false),
            ("self.?a.b.orValue(1) == 2", json!({"a": {"b": 2}}), true),
            ("self.?a.b.hasValue()", json!({}), false),
        ] {
            assert_eq!(run(source, value), Ok(Cel::Bool(expected)), "{source}");
        }
    }

    #[test]
    fn mistakes_are_reported() {
        let bad = |source: &str| Expression::compile(source).unwrap_err();
        assert_eq!(
            bad("foo == 1"),
            "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^"
        );
        assert!(bad("foo(self.a)").contains("undeclared reference to 'foo'"));
        assert!(bad("self.a ==").starts_with("ERROR: <input>:1:"));
        let nested = |open: &str, close: &str, n: usize| format!("{}true{}", open.repeat(n), close.repeat(n));
        for deep in [nested("(", ")", 5000), nested("[", "]", 5000), "true ? ".repeat(5000)] {
            assert!(bad(&deep).contains("recursion limit exceeded"));
        }
        assert_eq!(run(&nested("(", ")", MAX_NESTING), json!(1)), Ok(Cel::Bool(true)));
        assert!(run(&nested("[", "]", MAX_NESTING), json!(1)).is_ok());
        assert_eq!(run(&nested("!", "", 5000), json!(1)), Ok(Cel::Bool(true)));
        assert_eq!(run(&("true ? true : ".repeat(MAX_TERNARIES) + "true"), json!(1)), Ok(Cel::Bool(true)));
        assert!(Expression::compile(&vec!["self.a == 1"; 500].join(" || ")).is_ok());
        assert_eq!(run("self.x > 1", json!({})), Err("no such key: x".to_string()));
        assert_eq!(run("self.x[3] > 1", json!({"x": [1]})), Err("index out of bounds: 3".to_string()));
        assert_eq!(run("1 / self.x > 1", json!({"x": 0})), Err("division by zero".to_string()));
    }

    #[test]
    fn rules_as_they_are_written_in_the_field() {
        let routes = json!({
            "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 443, "protocol": "HTTPS",
                "hostname": "x.y", "tls": {"mode": "Terminate"}}],
            "path": {"type": "PathPrefix", "value": "/a%20b"}, "timeout": "10s", "weight": 1,
        });
        for source in [
            "self.listeners.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
            "self.listeners.all(l1, self.listeners.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && \
             (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && \
             !has(l2.hostname))))",
            "(self.path.type in ['PathPrefix']) ? self.path.value.matches(r\"\"\"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$\"\"\") : true",
            "!(has(self.request) && has(self.timeout)) || duration(self.timeout) <= duration(self.request)",
            "self.listeners.filter(l, l.port > 100).map(l, l.name) == ['b']",
            "!self.path.value.contains('//') && !self.path.value.endsWith('/..')",
            "self.listeners.map(l, l.name).all(n, size(n) == 1 && n.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
            "(has(self.weight) ? self.weight : 0) >= 1",
            "self.weight == int('1') && string(self.weight) == '1' && size(self.listeners) == 2",
            "has(self.path) && has(self.path.value) && self.path.value != ''",
        ] {
            assert_eq!(run(source, routes.clone()), Ok(Cel::Bool(true)), "{source}");
        }
    }

    #[test]
    fn the_libraries_are_there() {
        for source in [
            "self.all(x, x > 0)",
            "self.exists(x, x == 2)",
            "self.map(x, x * 2) == [2, 4]",
            "size(self) == 2",
            "isURL('https://a.b/c')",
            "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
            "ip('10.0.0.1').family() == 4",
            "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            "'abc'.matches('^a.c$')",
            "math.greatest(1, 2) == 2",
            "sets.contains([1, 2], [1])",
            "duration('1h') > duration('5m')",
            "'%d'.format([1]) == '1'",
            "!!true",
            "!!!false",
            "- -1 == 1",
            "--1 == 1",
            "3--1 == 4",
            "'!!' == '!' + '!'",
            "type(self[0]) == int",
            "self.filter(x, x > 1).size() == 1",
            "self[0] in [1, 5]",
            "type(self) == list",
        ] {
            assert_eq!(run(source, json!([1, 2])), Ok(Cel::Bool(true)), "{source}");
        }
    }
}
