//! The configuration file: what an operator, or whoever can write there, may put into it.

use crate::feed::Feed;
use butler_lb::config::{Config, TrackCheck, check, has_errors, report};
use butler_lb::render::{RenderError, haproxy, keepalived};
use butler_lb::vip::fuzzing::read_url;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::LazyLock;

/// Good files, each with other parts of the whole, to be changed in places. Small, because what is read is read slowly here.
static GOOD: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let read = |text: &str| {
        let (config, findings) = check(text, None);
        serde_json::to_value(config.unwrap_or_else(|| panic!("it is good: {findings:?}")))
            .expect("a configuration is JSON")
    };
    [
        include_str!("../seeds/config/health"),
        include_str!("../seeds/config/small"),
        include_str!("../seeds/config/vip"),
        include_str!("../seeds/config/proxied"),
    ]
    .map(|seed| read(seed.trim_start_matches('\0')))
    .into()
});

const MOST_PLACES: usize = 300;

/// Texts that mean something to one of those who read them.
const WORDS: [&str; 24] = [
    "",
    "-",
    "/",
    "0.0.0.0:6443",
    "[::]:6443",
    "192.168.30.30/32",
    "fe80::1%2",
    "::ffff:10.0.0.1",
    "https://127.0.0.1:6443/readyz",
    "https://[::1]/",
    "kubernetes",
    "lo",
    "tcp",
    "tls",
    "https",
    "guide",
    "v1",
    "sourceHash",
    "a b",
    "a\nb",
    "a\"b",
    "a#b",
    "{",
    "é",
];

/// A text; or, with an odd first byte, a good file with changes.
pub fn config(data: &[u8]) {
    let mut feed = Feed::new(data);
    if feed.flag() {
        let mut value = GOOD[usize::from(feed.byte()) % GOOD.len()].clone();
        // Copies of copies grow beyond all bounds.
        while !feed.is_empty() && places(&value) < MOST_PLACES {
            change(&mut value, &mut feed);
        }
        judge(&value.to_string());
    } else if let Ok(text) = std::str::from_utf8(feed.rest()) {
        judge(text);
    }
}

/// What must hold for every text.
fn judge(text: &str) {
    let (config, findings) = check(text, None);
    assert_eq!(config.is_none(), has_errors(&findings), "refused without a word, or taken with an error");
    // A carriage return alone ends a line of YAML too.
    let lines = text.matches(['\n', '\r']).count() as u64 + 1;
    for finding in &findings {
        assert!(
            (1..=lines.max(1)).contains(&finding.at.line) && finding.at.column >= 1,
            "{finding:?} of {lines}"
        );
        assert!(!finding.text.is_empty());
    }
    assert!(report("file", &findings).len() >= findings.len());
    let Some(config) = config else { return };
    let written = serde_json::to_string(&config).expect("a configuration is JSON");
    let (again, findings) = check(&written, None);
    assert_eq!(again.as_ref(), Some(&config), "{findings:?} {written}");
    for url in config.vips.iter().flat_map(|vip| &vip.track).filter_map(|track| match &track.check {
        TrackCheck::LocalApiserver(url) => Some(url),
        _ => None,
    }) {
        let host = read_url(url).and_then(|(host, ..)| host.parse::<IpAddr>().ok());
        assert!(host.is_some() && is_plain(url), "taken here, and never asked: {url:?}");
    }
    for path in config.listeners.iter().filter_map(|listener| listener.health.path.as_deref()) {
        assert!(path.starts_with('/') && is_plain(path), "not a path of a request: {path:?}");
    }
    renders(&config, haproxy);
    renders(&config, keepalived);
}

/// Nothing in it ends a line or a word of a request.
fn is_plain(text: &str) -> bool {
    !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Texts of the operator stay words of the line that they are in: with tame ones in their place, every line has as many.
fn renders(config: &Config, render: fn(&Config) -> Result<String, RenderError>) {
    let Ok(text) = render(config) else { return };
    let tame = render(&tame(config)).expect("what renders with any words renders with tame ones");
    let shape =
        |text: &str| -> Vec<usize> { text.split('\n').map(|line| line.split_whitespace().count()).collect() };
    assert_eq!(shape(&text), shape(&tame), "{text}");
    for mark in ['"', '\'', '#', '{', '}', '\\', '$', '!'] {
        assert_eq!(text.matches(mark).count(), tame.matches(mark).count(), "{mark} in {text}");
    }
    let sections = || text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    assert_eq!(
        sections().count(),
        sections().collect::<BTreeSet<_>>().len(),
        "a section is there twice: {text}"
    );
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

fn tame(config: &Config) -> Config {
    let mut config = config.clone();
    for listener in &mut config.listeners {
        let health = &mut listener.health;
        for text in [
            &mut health.path,
            &mut health.server_name,
            &mut health.ca_file,
            &mut health.cert_file,
            &mut health.key_file,
        ] {
            *text = text.as_ref().map(|_| "/x".to_owned());
        }
    }
    let mut urls: Vec<String> = Vec::new();
    for vip in &mut config.vips {
        vip.interface = "x".to_owned();
        for track in &mut vip.track {
            match &mut track.check {
                // The same ones stay the same: they are rendered once.
                TrackCheck::LocalApiserver(url) => {
                    let place = urls.iter().position(|known| known == url).unwrap_or_else(|| {
                        urls.push(url.clone());
                        urls.len() - 1
                    });
                    *url = format!("x{place}");
                }
                TrackCheck::Interface(name) => *name = "x".to_owned(),
                TrackCheck::Listener(_) => {}
            }
        }
    }
    config
}

/// Changes one place: another value, a missing one, one that is there twice, one from elsewhere.
fn change(value: &mut Value, feed: &mut Feed<'_>) {
    let elsewhere = at(value, feed.number(1) as usize).clone();
    let place = at(value, feed.number(2) as usize);
    match feed.byte() % 10 {
        0 => *place = json!(feed.number(1)),
        1 => *place = json!(feed.number(8)),
        2 => *place = json!(feed.flag()),
        3 | 4 => *place = json!(WORDS[usize::from(feed.byte()) % WORDS.len()]),
        5 | 6 => {
            let length = usize::from(feed.byte() % 32);
            *place = json!(String::from_utf8_lossy(feed.take(length)));
        }
        7 => *place = elsewhere,
        8 => match place {
            Value::Array(items) => items.push(elsewhere),
            Value::Object(map) => {
                let key = map.keys().nth(usize::from(feed.byte()) % map.len().max(1)).cloned();
                key.map(|key| map.remove(&key));
            }
            other => *other = Value::Null,
        },
        _ => match place {
            Value::Array(items) if !items.is_empty() => {
                items.remove(usize::from(feed.byte()) % items.len());
            }
            Value::String(text) => text.push_str(WORDS[usize::from(feed.byte()) % WORDS.len()]),
            other => *other = json!(-1),
        },
    }
}

/// A value and all that are in it.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(places).sum(),
        Value::Object(map) => map.values().map(places).sum(),
        _ => 0,
    }
}

/// The place with this number, counted from the top; round and round.
fn at(value: &mut Value, number: usize) -> &mut Value {
    fn walk(value: &mut Value, mut left: usize) -> &mut Value {
        if left == 0 {
            return value;
        }
        left -= 1;
        let children: Vec<&mut Value> = match value {
            Value::Array(items) => items.iter_mut().collect(),
            Value::Object(map) => map.values_mut().collect(),
            _ => unreachable!("a leaf is one place"),
        };
        for child in children {
            let size = places(child);
            if left < size {
                return walk(child, left);
            }
            left -= size;
        }
        unreachable!("there are no more places than were counted")
    }
    let total = places(value);
    walk(value, number % total)
}
