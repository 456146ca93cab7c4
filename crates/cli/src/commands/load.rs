//! Finds and checks the bootstrap file, and says everything that is wrong with it.

use crate::config::{self, Need, Schemas, Settings, Surroundings};
use crate::engine::Home;
use crate::exit::{Ended, Exit};
use crate::output;
use crate::validate::{self, report};
use anyhow::Result;
use butler_api::Provider;
use butler_controllers::addons::{Bundle, NoSources, Sources, StandIns};
use std::path::Path;
use std::sync::Arc;

/// The settings of a bootstrap, from its file.
pub(crate) fn load(
    file: Option<&Path>,
    wanted: Option<Provider>,
    need: Need,
    home: &Home,
) -> Result<Settings> {
    let file =
        config::locate(file, home.path()).map_err(|error| Ended::error(Exit::Usage, error.to_string()))?;
    let shown = file.display().to_string();
    let text = validate::read(&shown)
        .map_err(|why| Ended::error(Exit::Usage, format!("cannot read the bootstrap file {shown}: {why}")))?;
    load_text(&shown, &text, wanted, need, &Surroundings::of(&file))
}

/// The settings of a bootstrap, from a text.
pub(crate) fn load_text(
    shown: &str,
    text: &str,
    wanted: Option<Provider>,
    need: Need,
    around: &Surroundings,
) -> Result<Settings> {
    let checked = config::check(&Schemas::new()?, text, wanted, need, around);
    report(shown, &checked.findings).iter().for_each(|line| output::note(line));
    checked.settings.ok_or_else(|| Ended::error(Exit::Usage, format!("{shown} is no good as it is")))
}

/// Where addons come from: a bundle, stand-ins for a rehearsal, or nowhere.
pub(crate) fn sources(bundle: Option<&Path>, rehearsal: bool) -> Result<Arc<dyn Sources>> {
    match bundle {
        Some(path) => {
            Bundle::load(path).map(|bundle| Arc::new(bundle) as Arc<dyn Sources>).map_err(|problems| {
                let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
                Ended::error(
                    Exit::Usage,
                    format!("the bundle {} is no good:\n  {}", path.display(), list.join("\n  ")),
                )
            })
        }
        None if rehearsal => Ok(Arc::new(StandIns)),
        None => Ok(Arc::new(NoSources)),
    }
}
