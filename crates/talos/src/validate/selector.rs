//! Disk selectors: expressions in CEL over one disk, which Talos reads and type-checks with the config. So do we, as far as
//! selectors go; what is beyond (comprehensions, rare functions) is not judged.

use crate::contract::Contract;
use kube_cel::cel::{
    IdedExpr,
    common::ast::{CallExpr, Expr, LiteralValue, SelectExpr},
    parser::Parser,
};
use std::fmt;

/// Names of sizes, all of them unsigned numbers: `100u * GiB`.
const UNITS: [&str; 12] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "kB", "MB", "GB", "TB", "PB", "EB"];

/// The fields of `disk`.
const FIELDS: [(&str, Kind); 18] = [
    ("size", Kind::Uint),
    ("io_size", Kind::Uint),
    ("sector_size", Kind::Uint),
    ("readonly", Kind::Bool),
    ("rotational", Kind::Bool),
    ("cdrom", Kind::Bool),
    ("model", Kind::Text),
    ("serial", Kind::Text),
    ("modalias", Kind::Text),
    ("wwid", Kind::Text),
    ("uuid", Kind::Text),
    ("bus_path", Kind::Text),
    ("sub_system", Kind::Text),
    ("transport", Kind::Text),
    ("dev_path", Kind::Text),
    ("pretty_size", Kind::Text),
    ("secondary_disks", Kind::List),
    ("symlinks", Kind::List),
];

/// What an expression is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Uint,
    Int,
    Double,
    Text,
    List,
    Disk,
    /// Not judged.
    Any,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Uint => "uint",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::List => "list",
            Self::Disk => "disk",
            Self::Any => "dyn",
        })
    }
}

/// No selector that a person wrote is longer.
const LONGEST: usize = 2000;

/// The parser takes some ten kilobytes per level of brackets.
const STACK: usize = 32 << 20;

/// What is wrong with the selector, in Talos' words where they are short.
pub(super) fn problem(text: &str, contract: Option<Contract>) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    std::thread::scope(|scope| {
        // On a stack of its own; without a thread to spare, or with a parser that fails, it is not judged.
        let judge = std::thread::Builder::new().stack_size(STACK);
        judge.spawn_scoped(scope, || judged(text, contract)).ok()?.join().ok()?
    })
}

fn judged(text: &str, contract: Option<Contract>) -> Option<String> {
    let parsed = match Parser::new().parse(text) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let first = errors.to_string().lines().next().unwrap_or_default().to_owned();
            // Talos' own limit is higher.
            if first.to_lowercase().contains("recursion") {
                return None;
            }
            return Some(format!("disk selector is invalid: {first}"));
        }
    };
    match kind(&parsed, contract) {
        Ok(Kind::Bool | Kind::Any) => None,
        Ok(other) => {
            Some(format!("disk selector is invalid: expression output type is {other}, expected bool"))
        }
        Err(why) => Some(format!("disk selector is invalid: {why}")),
    }
}

fn kind(expr: &IdedExpr, contract: Option<Contract>) -> Result<Kind, String> {
    match &expr.expr {
        Expr::Literal(literal) => Ok(match literal {
            LiteralValue::Boolean(_) => Kind::Bool,
            LiteralValue::Double(_) => Kind::Double,
            LiteralValue::Int(_) => Kind::Int,
            LiteralValue::String(_) => Kind::Text,
            LiteralValue::UInt(_) => Kind::Uint,
            LiteralValue::Bytes(_) | LiteralValue::Null => Kind::Any,
        }),
        Expr::Ident(name) => match name.as_str() {
            "disk" => Ok(Kind::Disk),
            "system_disk" => Ok(Kind::Bool),
            unit if UNITS.contains(&unit) => Ok(Kind::Uint),
            other => Err(format!("undeclared reference to '{other}'")),
        },
        Expr::Select(select) => field(select, contract),
        Expr::Call(call) => called(call, contract),
        Expr::List(list) => {
            list.elements.iter().try_for_each(|element| kind(element, contract).map(drop))?;
            Ok(Kind::List)
        }
        _ => Ok(Kind::Any),
    }
}

fn field(select: &SelectExpr, contract: Option<Contract>) -> Result<Kind, String> {
    if kind(&select.operand, contract)? != Kind::Disk {
        return Ok(Kind::Any);
    }
    // Links to disks came with the user volumes.
    let known =
        |name: &str| name != "symlinks" || contract.is_none_or(|contract| contract >= Contract::V1_10);
    let found = FIELDS.iter().find(|(name, _)| *name == select.field && known(name));
    let (_, kind) = found.ok_or_else(|| format!("undefined field '{}'", select.field))?;
    Ok(if select.test { Kind::Bool } else { *kind })
}

fn called(call: &CallExpr, contract: Option<Contract>) -> Result<Kind, String> {
    let kinds: Vec<Kind> = call
        .target
        .as_deref()
        .into_iter()
        .chain(&call.args)
        .map(|part| kind(part, contract))
        .collect::<Result<_, _>>()?;
    let name = call.func_name.as_str();
    let mismatch = || {
        let list: Vec<String> = kinds.iter().map(Kind::to_string).collect();
        Err(format!("found no matching overload for '{name}' applied to '({})'", list.join(", ")))
    };
    let all = |wanted: Kind| kinds.iter().all(|kind| matches!(kind, Kind::Any) || *kind == wanted);
    let known: Vec<Kind> = kinds.iter().copied().filter(|kind| *kind != Kind::Any).collect();
    let alike = known.windows(2).all(|pair| pair[0] == pair[1]);
    match name {
        "_&&_" | "_||_" | "!_" if all(Kind::Bool) => Ok(Kind::Bool),
        "_==_" | "_!=_" if alike => Ok(Kind::Bool),
        "_<_" | "_<=_" | "_>_" | "_>=_" if alike => Ok(Kind::Bool),
        "_+_" | "_-_" | "_*_" | "_/_" | "_%_" if alike => Ok(known.first().copied().unwrap_or(Kind::Any)),
        "@in" | "_in_" if matches!(kinds.last(), Some(Kind::List | Kind::Any)) => Ok(Kind::Bool),
        "glob" if kinds.len() == 2 && all(Kind::Text) => Ok(Kind::Bool),
        "startsWith" | "endsWith" | "contains" | "matches" if all(Kind::Text) => Ok(Kind::Bool),
        "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_+_" | "_-_"
        | "_*_" | "_/_" | "_%_" | "@in" | "_in_" | "glob" | "startsWith" | "endsWith" | "contains"
        | "matches" => mismatch(),
        "uint" => Ok(Kind::Uint),
        "int" | "size" => Ok(Kind::Int),
        "string" => Ok(Kind::Text),
        "double" => Ok(Kind::Double),
        "bool" => Ok(Kind::Bool),
        "_?_:_" => Ok(kinds.get(1).copied().unwrap_or(Kind::Any)),
        "-_" | "_[_]" | "dyn" | "type" | "bytes" | "duration" | "timestamp" => Ok(Kind::Any),
        other => Err(format!("undeclared reference to '{other}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_that_talos_takes() {
        for good in [
            "true",
            "system_disk",
            "!system_disk && disk.transport == 'nvme'",
            "disk.size >= 100u * GiB && disk.size < 2u * TB",
            "glob('Samsung*', disk.model) || disk.rotational",
            "'/dev/disk/by-id/x' in disk.symlinks",
            "disk.dev_path == \"/dev/vdb\"",
            "disk.serial.startsWith('S1')",
            "disk.symlinks.exists(link, link.endsWith('x'))",
            "disk.size > uint(10)",
            "has(disk.serial)",
        ] {
            assert_eq!(problem(good, Some(Contract::V1_13)), None, "{good}");
        }
    }

    #[test]
    fn selectors_that_talos_refuses() {
        for (bad, why) in [
            ("disk.size >", "disk selector is invalid: "),
            ("nope == 1", "undeclared reference to 'nope'"),
            ("system_disk || disk.nope == 1", "undefined field 'nope'"),
            ("disk.size > 10", "found no matching overload for '_>_' applied to '(uint, int)'"),
            ("disk.model.lowerAscii() == 'a'", "undeclared reference to 'lowerAscii'"),
            ("disk.transport", "expression output type is string, expected bool"),
            ("disk.model && true", "applied to '(string, bool)'"),
            ("glob('x', disk.size)", "'glob' applied to '(string, uint)'"),
        ] {
            let found = problem(bad, Some(Contract::V1_13)).unwrap_or_default();
            assert!(found.contains(why), "{bad}: {found}");
        }
        let deep = format!("{}disk{}", "(".repeat(990), ")".repeat(990));
        assert_eq!(problem(&deep, None), None, "too deep to judge, and no crash");
        let links = "'/dev/x' in disk.symlinks";
        assert!(problem(links, Some(Contract::V1_9)).is_some_and(|why| why.contains("symlinks")));
    }
}
