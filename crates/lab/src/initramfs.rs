//! Builds an initramfs: a "newc" cpio archive (kernel:
//! Documentation/driver-api/early-userspace/buffer-format.rst) with `/init` and other files.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Builds the archive from paths, e.g. `init` or `usr/bin/tool`, and contents. Makes the folders;
/// all files are executable.
pub fn build<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut archive = Archive::default();
    let mut folders = BTreeSet::new();
    for (path, content) in files {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            if folders.insert(path[..at].to_owned()) {
                archive.add(&path[..at], FOLDER, &[]);
            }
        }
        archive.add(path, PROGRAM, content);
    }
    archive.add("TRAILER!!!", 0, &[]);
    archive.bytes
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode == FOLDER { 2 } else { 1 };
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = name.len() as u32 + 1;
        // inode, mode, user, group, links, time, size, two devices (major, minor), name, checksum
        let numbers = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(&content[..size as usize]);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents_begin_at_multiples_of_four() {
        let archive = build([("init", b"abcde".as_slice()), ("usr/lib/x", b"y")]);
        let text = String::from_utf8(archive.clone()).unwrap();
        assert_eq!(archive.len() % 4, 0);
        for name in ["init\0", "usr\0", "usr/lib\0", "usr/lib/x\0", "TRAILER!!!\0"] {
            let at = text.find(name).unwrap();
            assert_eq!(&text[at - 110..at - 104], "070701", "{name:?}");
            assert_eq!((at - 110) % 4, 0, "{name:?}");
        }
        assert_eq!(text.find("abcde").unwrap() % 4, 0);
        let init = &text[..110];
        assert_eq!(&init[14..22], "000081ed");
        assert_eq!(&init[54..62], "00000005");
    }
}
