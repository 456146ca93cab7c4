//! `butleradm kubeconfig`: the way into a cluster, printed or merged into the user's own file.

use crate::config;
use crate::engine::Home;
use crate::exit::{Ended, Exit};
use crate::output;
use crate::talos::files;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster. Not needed when there is only one.
    cluster: Option<String>,
    /// Print where the file is, not what is in it.
    #[arg(long)]
    path: bool,
    /// Put it into this kubeconfig, beside what is there, as a context named like the cluster. Without a value: the file that
    /// KUBECONFIG names first, else ~/.kube/config.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "", conflicts_with = "path")]
    merge: Option<PathBuf>,
    /// The talosconfig in place of the kubeconfig.
    #[arg(long, conflicts_with = "merge")]
    talos: bool,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let cluster = match args.cluster {
        Some(cluster) => cluster,
        None => home.choose(None)?,
    };
    let path = if args.talos { home.talosconfig(&cluster) } else { home.kubeconfig(&cluster) };
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ended::error(
            Exit::NotFound,
            format!("{} is not there: {cluster} is not ready yet, or unknown", path.display()),
        ),
        _ => anyhow::Error::new(error).context(format!("cannot read {}", path.display())),
    })?;
    match args.merge {
        Some(file) => {
            let file = if file.as_os_str().is_empty() { usual_kubeconfig() } else { file };
            merge_into(&file, &text, &cluster)?;
            output::line(&format!("{}: context {cluster}", file.display()));
        }
        None if args.path => output::line(&path.display().to_string()),
        None => output::line(text.trim_end()),
    }
    Ok(Exit::Ok)
}

fn usual_kubeconfig() -> PathBuf {
    let named = std::env::var_os("KUBECONFIG").and_then(|paths| std::env::split_paths(&paths).next());
    named.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| config::home().join(".kube/config"))
}

fn merge_into(file: &Path, text: &str, cluster: &str) -> Result<()> {
    let there = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let merged =
        merge(&there, text, cluster).with_context(|| format!("cannot merge into {}", file.display()))?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    files::write_one(file, &merged, true).with_context(|| format!("cannot write {}", file.display()))
}

/// Puts a kubeconfig's one cluster, user and context beside those of another, all three named like the cluster.
fn merge(there: &str, text: &str, cluster: &str) -> Result<String> {
    let new: Value = serde_saphyr::from_str(text).context("the cluster's kubeconfig is damaged")?;
    let mut all: Value = match there.trim().is_empty() {
        true => json!({"apiVersion": "v1", "kind": "Config"}),
        false => serde_saphyr::from_str(there).context("it is not YAML")?,
    };
    if !all.is_object() {
        bail!("it is not a kubeconfig");
    }
    let context = json!({"cluster": cluster, "user": cluster});
    for (list, field, value) in [
        ("clusters", "cluster", new["clusters"][0]["cluster"].clone()),
        ("users", "user", new["users"][0]["user"].clone()),
        ("contexts", "context", context),
    ] {
        if !all[list].is_array() {
            all[list] = json!([]);
        }
        if let Value::Array(entries) = &mut all[list] {
            entries.retain(|entry| entry["name"] != cluster);
            entries.push(json!({"name": cluster, field: value}));
        }
    }
    if all["current-context"].as_str().is_none_or(str::is_empty) {
        all["current-context"] = cluster.into();
    }
    serde_saphyr::to_string(&all).context("cannot write it as YAML")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "clusters: [{name: x, cluster: {server: 'https://10.0.0.1:6443'}}]\nusers: [{name: y, user: {token: t}}]\n";

    #[test]
    fn what_was_there_stays() {
        let there = "apiVersion: v1\nkind: Config\ncurrent-context: work\nclusters: [{name: work, cluster: {server: s}}]\ncontexts: [{name: work, context: {cluster: work, user: me}}]\nusers: [{name: me, user: {}}]\n";
        let once = merge(there, NEW, "m1").unwrap();
        let twice: Value = serde_saphyr::from_str(&merge(&once, NEW, "m1").unwrap()).unwrap();
        assert_eq!(twice["current-context"], "work");
        assert_eq!(twice["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(twice["clusters"][1]["cluster"]["server"], "https://10.0.0.1:6443");
        assert_eq!(twice["contexts"][1], json!({"name": "m1", "context": {"cluster": "m1", "user": "m1"}}));
        let alone: Value = serde_saphyr::from_str(&merge("", NEW, "m1").unwrap()).unwrap();
        assert_eq!(
            (alone["current-context"].as_str(), alone["users"][0]["user"]["token"].as_str()),
            (Some("m1"), Some("t"))
        );
        assert!(merge("just text", NEW, "m1").is_err());
    }
}
