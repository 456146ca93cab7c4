//! The table of all fields in docs/bootstrap.md: made from the schema, and checked to be current.

use super::schema::Schemas;
use butler_apiserver::schema::{Additional, Schema};
use std::path::Path;

const BEGIN: &str = "<!-- fields -->\n";
const END: &str = "<!-- end of fields -->";

fn rows(path: &str, schema: &Schema, table: &mut String) {
    for (name, field) in &schema.properties {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let mut about = field.description.clone().unwrap_or_default().replace('|', "\\|");
        if schema.limits.required.contains(name) && field.default.is_none() {
            about = format!("**required.** {about}");
        }
        let default =
            field.default.as_ref().filter(|default| !default.is_object() && !about.contains("efault"));
        if let Some(default) = default {
            about.push_str(&format!(" Default: {}.", default.to_string().trim_matches('"')));
        }
        table.push_str(&format!("| `{path}` | {} | {about} |\n", kind(field)));
        match &field.items {
            Some(items) => rows(&format!("{path}[]"), items, table),
            None => rows(&path, field, table),
        }
    }
}

fn kind(field: &Schema) -> String {
    match (&field.items, &field.additional) {
        (Some(items), _) => format!("list of {}", kind(items)),
        (None, Additional::Of(values)) => format!("map to {}", kind(values)),
        _ => field.ty.map_or("any", |ty| ty.name()).to_owned(),
    }
}

#[test]
fn the_table_of_fields_is_current() {
    let mut table = String::from("\n| field | type | |\n|---|---|---|\n");
    rows("", &Schemas::new().unwrap().file, &mut table);
    table.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bootstrap.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (there, tail) = rest.split_once(END).unwrap();
    if there != table {
        if std::env::var_os("BUTLER_UPDATE_DOCS").is_some() {
            std::fs::write(&path, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
            return;
        }
        panic!("docs/bootstrap.md is stale: run this test with BUTLER_UPDATE_DOCS=1 and commit");
    }
}
