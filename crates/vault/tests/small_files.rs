//! Small files: sealed as a whole, opened by the right key and name, written anew under another key, or refused with the key that is missing.

use std::collections::BTreeMap;

use apus_redo::{Closed, Control, LogId, LogKind, OVERHEAD_BYTES, Vault, sealed_under};
use apus_signal::file::{seal, unseal};
use apus_types::NodeId;
use apus_vault::{DiskKeys, MasterKey, key_id};

const OLD: MasterKey = [1; 32];
const NEW: MasterKey = [2; 32];
const TEXT: &[u8] = b"what nobody else is to read";

fn vault(keys: &[MasterKey]) -> Vault {
    DiskKeys::new(keys, true).vault()
}

#[test]
fn what_is_sealed_is_opened_by_its_key_and_its_name() {
    let sealed = vault(&[OLD]).seal_file("view", TEXT.to_vec());
    assert_eq!(sealed.len(), TEXT.len() + OVERHEAD_BYTES);
    assert!(!sealed.windows(8).any(|bytes| TEXT.windows(8).any(|text| text == bytes)));
    assert_ne!(sealed, vault(&[OLD]).seal_file("view", TEXT.to_vec()), "each content has a key of its own");
    assert_eq!(vault(&[OLD]).open_file("view", &sealed).as_deref(), Ok(TEXT));
    assert_eq!(vault(&[NEW, OLD]).open_file("view", &sealed).as_deref(), Ok(TEXT));
    assert!(matches!(vault(&[OLD]).open_file("dictionary", &sealed), Err(Closed::Damaged(_))), "another name");
    for other in [vault(&[NEW]), Vault::default()] {
        assert_eq!(other.open_file("view", &sealed), Err(Closed::NoKey(key_id(&OLD))));
    }
    assert_eq!((sealed_under(&sealed), sealed_under(TEXT)), (Some(key_id(&OLD)), None));
    // No bytes remove a file, and what is in the clear is read as it is.
    assert_eq!(vault(&[OLD]).seal_file("view", Vec::new()), b"");
    assert_eq!(vault(&[OLD]).open_file("view", TEXT).as_deref(), Ok(TEXT));
}

/// Rot is not taken for a missing key, and a missing key not for rot.
#[test]
fn what_is_cut_off_or_changed_is_damage() {
    let sealed = vault(&[OLD]).seal_file("view", TEXT.to_vec());
    for bit in 64..sealed.len() * 8 {
        let mut bad = sealed.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        for vault in [vault(&[OLD]), Vault::default()] {
            assert!(matches!(vault.open_file("view", &bad), Err(Closed::Damaged(_))), "bit {bit}");
        }
        // And with a hash that is right.
        let body = seal(*b"APUSENC1", &bad[16..]);
        assert!(vault(&[OLD]).open_file("view", &body).is_err() || bad[16..] == sealed[16..], "bit {bit}");
    }
    for at in 8..sealed.len() {
        assert!(matches!(vault(&[OLD]).open_file("view", &sealed[..at]), Err(Closed::Damaged(_))), "cut off at {at}");
    }
    let mut later = unseal(*b"APUSENC1", &sealed).expect("as it was made").to_vec();
    later[0] = 2;
    assert_eq!(vault(&[OLD]).open_file("view", &seal(*b"APUSENC1", &later)), Err(Closed::Version(2)));
}

fn control(vault: &Vault) -> Control {
    let id = LogId { cluster: 7, node: NodeId(1), instance: 0, kind: LogKind::Redo };
    let mut control = Control { segments: vec![1], ..Control::empty(id, 1 << 20) };
    control.keys.set(1, 0, vault.new_key());
    control
}

#[test]
fn what_a_process_finds_is_opened_or_the_missing_key_is_named() {
    let old = vault(&[OLD]);
    let clear = control(&old).encode(); // in the clear, with a key in it, as `--disk-decrypt` leaves it
    let files = BTreeMap::from([
        ("redo-0.ctl".to_owned(), old.seal_file("redo-0.ctl", control(&old).encode())),
        ("view".to_owned(), old.seal_file("view", TEXT.to_vec())),
        ("dictionary".to_owned(), TEXT.to_vec()),
    ]);
    let opened = old.open_all(files.clone()).expect("the key is there");
    assert_eq!((opened["view"].as_slice(), opened["dictionary"].as_slice()), (TEXT, TEXT));
    assert!(Control::decode(&opened["redo-0.ctl"], &old).is_ok_and(|found| found.keys.of(1, 0).is_some()));
    let missing = |files| vault(&[NEW]).open_all(files).expect_err("the key is not there");
    assert_eq!(missing(files.clone()).1, Closed::NoKey(key_id(&OLD)));
    assert_eq!(
        missing(BTreeMap::from([("redo-0.ctl".to_owned(), clear)])),
        ("redo-0.ctl".to_owned(), Closed::NoKey(key_id(&OLD)))
    );
    // Damage is for whoever reads the file.
    let mut rotten = files;
    rotten.get_mut("view").expect("there")[40] ^= 1;
    assert!(old.open_all(rotten).is_ok_and(|files| files["view"] != TEXT));
}

/// Files and the keys in them, also of a content that was made before the rotation and is written after it.
#[test]
fn after_a_rotation_nothing_needs_the_older_key() {
    let keys = DiskKeys::new(&[OLD], true);
    let made_before = control(&keys.vault()).encode();
    let sealed_before = keys.vault().seal_file("redo-0.ctl", made_before.clone());
    keys.renew(&[NEW, OLD]);
    for file in [
        keys.vault().seal_file("redo-0.ctl", made_before),
        keys.vault().renew_file("redo-0.ctl", &sealed_before).expect("both keys are there"),
    ] {
        let new = vault(&[NEW]);
        assert_eq!(sealed_under(&file), Some(key_id(&NEW)));
        let content = new.open_file("redo-0.ctl", &file).expect("it needs the new key alone");
        assert!(Control::decode(&content, &new).is_ok_and(|control| control.keys.of(1, 0).is_some()));
    }
    // A key file from which the older one is gone already does not make it forgotten while the process lives.
    keys.renew(&[NEW]);
    assert!(keys.vault().open_file("redo-0.ctl", &sealed_before).is_ok());
}

#[test]
fn turned_off_files_are_written_in_the_clear_and_read_as_they_are() {
    let sealed = vault(&[OLD]).seal_file("view", TEXT.to_vec());
    let off = DiskKeys::new(&[OLD], false).vault();
    assert!(off.new_key().is_none());
    assert_eq!(off.renew_file("view", &sealed).as_deref(), Ok(TEXT));
    assert_eq!(
        vault(&[OLD]).renew_file("view", TEXT).map(|file| sealed_under(&file)),
        Ok(Some(key_id(&OLD))),
        "and on again"
    );
}
