//! The JSON schema of the file, made from the types.

use super::model::Config;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Made once: a file is checked at every reload.
static WHOLE: LazyLock<Value> = LazyLock::new(make);

/// The schema as it is published: with names for editors and without the defaults that say nothing.
pub fn json_schema() -> Value {
    let mut schema = whole().clone();
    schema["title"] = json!("butler-lb");
    schema
}

/// The schema without references, so that a walk over it needs no look-ups.
pub(super) fn whole() -> &'static Value {
    &WHOLE
}

fn make() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<Config>().to_value();
    tidy(&mut schema);
    schema
}

/// Nothing and the objects made of defaults are no defaults that a reader would write.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map
                .get("default")
                .is_some_and(|value| value.is_null() || value.is_object() || value.is_array())
            {
                map.remove("default");
            }
            for key in ["description"] {
                if let Some(Value::String(text)) = map.get_mut(key) {
                    *text = text.replace('\n', " ");
                }
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_no_references_and_says_what_fields_are() {
        let schema = json_schema();
        assert!(!schema.to_string().contains("$ref"));
        let bind = &schema["properties"]["listeners"]["items"]["properties"]["bind"];
        assert_eq!(bind["items"]["format"], "address:port");
        assert_eq!(schema["properties"]["vips"]["items"]["properties"]["priority"]["maximum"], 254);
        assert_eq!(schema["additionalProperties"], false);
    }
}
