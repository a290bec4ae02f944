//! Static tokens out of a file: `token,user,uid,"group1,group2"` on each line.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use machinery::rest::User;

use super::service_accounts::hash;

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// A line has too few columns.
    #[error("token file '{path}' must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns {
        path: String,
        /// How many there are.
        found: usize,
    },
}

/// The tokens, by hash: the file's secrets are not kept in memory.
#[derive(Debug, Default)]
pub struct TokenFile {
    users: HashMap<[u8; 32], Arc<User>>,
}

impl TokenFile {
    /// Reads the file. Later lines win; empty tokens are no tokens.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: name.clone(), source })?;
        Self::parse(&text).map_err(|found| Error::Columns { path: name, found })
    }

    fn parse(text: &str) -> Result<Self, usize> {
        let mut users = HashMap::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let columns = columns(line);
            let [token, name, uid, rest @ ..] = columns.as_slice() else { return Err(columns.len()) };
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map_or("", String::as_str);
            let mut user = User::new(name.as_str(), groups.split(',').map(str::trim).filter(|group| !group.is_empty()));
            user.uid.clone_from(uid);
            users.insert(hash(token), Arc::new(user));
        }
        Ok(Self { users })
    }

    /// The user of a token.
    pub fn authenticate(&self, token: &str) -> Option<Arc<User>> {
        if self.users.is_empty() { None } else { self.users.get(&hash(token)).cloned() }
    }
}

/// The columns of a line; a quoted one may hold commas.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let column = columns.last_mut().expect("there is always a last column");
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                column.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            other => column.push(other),
        }
    }
    columns.into_iter().map(|column| column.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_users() {
        let file =
            TokenFile::parse("# comment\ntoken1,jane,u1,\"devs, ops\"\n\ntoken2,bob,u2\n,ghost,u3\n").expect("tokens");
        let jane = file.authenticate("token1").expect("jane");
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "u1"));
        assert_eq!(jane.groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!(file.authenticate("token2").map(|user| user.name.clone()).as_deref(), Some("bob"));
        assert!(file.authenticate("token").is_none() && file.authenticate("").is_none());
        assert_eq!(TokenFile::parse("a,b").expect_err("too few"), 2);
    }
}
