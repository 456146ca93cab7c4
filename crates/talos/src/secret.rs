//! Text that must not be shown.

use std::fmt;

/// A token, key or password. It can be read out by [`Secret::expose`] only; `Debug` shows whether there is one, not what.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself: for a file of mode 0600 or the wire, never for a log or an error.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<empty>" } else { "<secret>" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "<secret> Some(<secret>)");
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(format!("{:?}", Secret::default()), "<empty>");
    }
}
