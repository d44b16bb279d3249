import os
import time

import pytest

from logdb.errors import CorruptionError, WriteFailed
from logdb.model import TopicPartition
from logdb_spark_source import staging
from logdb_spark_source.staging import SharedDirectory, StagedFileMissing, StagingFile, StagingNotShared

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def written(directory, *pieces):
    file = StagingFile(str(directory))
    for partition, data in pieces:
        file.add(partition, data, 1)
    return file.close()


def test_what_tasks_wrote_comes_back_partition_by_partition_in_their_order(tmp_path):
    files = [written(tmp_path, (A, b"one"), (B, b"two"), (A, b"three")), written(tmp_path), written(tmp_path, (A, b"four"))]
    staging.check_there(files)
    assert [(where, bytes(data)) for where, data in staging.gathered(files)] == [(A, b"onethreefour"), (B, b"two")]
    assert [file.record_count for file in files] == [3, 0, 1]


def test_no_rows_no_file(tmp_path):
    file = written(tmp_path / "staging")
    assert (file.pieces, file.size_bytes) == ((), 0)
    assert not (tmp_path / "staging").exists()


def test_groups_are_about_what_is_appended_at_once(tmp_path):
    piece = bytes(300 << 10)
    files = [written(tmp_path, (A, piece), (A, piece)), written(tmp_path, (A, piece), (A, bytes(3 << 20)), (A, piece))]
    assert [len(data) >> 10 for _, data in staging.gathered(files)] == [900, 3 << 10, 300]


def test_no_other_user_may_read_what_is_staged(tmp_path):
    file = written(tmp_path / "staging", (A, b"secret"))
    assert os.stat(file.path).st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / "staging").st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size_bytes", [0, 5, 9])
def test_a_file_of_another_size_is_found_before_anything_is_begun(tmp_path, size_bytes):
    file = written(tmp_path, (A, b"12345678"))
    os.truncate(file.path, size_bytes)
    with pytest.raises(CorruptionError, match=rf"8 bytes were staged, {size_bytes} are there") as caught:
        staging.check_there([file])
    assert caught.value.path == file.path


def test_a_flipped_bit_is_found_with_its_place_and_both_checksums(tmp_path):
    file = written(tmp_path, (A, b"first"), (A, b"second"))
    with open(file.path, "r+b") as there:
        there.seek(7)
        there.write(b"X")
    with pytest.raises(CorruptionError, match=r"byte 5: CRC of 6 staged bytes 0x\w+, it was 0x\w+"):
        list(staging.gathered([file]))


def test_a_file_that_was_removed_says_who_wrote_it(tmp_path):
    file = written(tmp_path, (A, b"first"))._replace(path=str(tmp_path / "gone"), host="worker-7")
    for look in (staging.check_there, lambda files: list(staging.gathered(files))):
        with pytest.raises(StagedFileMissing, match=r"gone, which a task on worker-7 wrote, was removed before the commit.* again"):
            look([file])


def test_a_directory_is_known_by_its_token_whatever_its_name(tmp_path):
    shared = SharedDirectory.made(str(tmp_path / "a"))
    assert SharedDirectory.made(str(tmp_path / "a")) == shared, "another driver finds the token"
    os.rename(tmp_path / "a", tmp_path / "b")
    shared._replace(path=str(tmp_path / "b")).check()
    with pytest.raises(StagingNotShared, match="No such file"):
        shared.check()
    SharedDirectory.made(str(tmp_path / "a"))
    with pytest.raises(StagingNotShared, match="different tokens"):
        shared.check()


@pytest.mark.parametrize(("mode", "good"), [(0o777, False), (0o1777, True), (0o775, True)])
def test_a_directory_in_which_every_user_may_change_files(tmp_path, mode, good):
    staging_path = tmp_path / "staging"
    staging_path.mkdir()
    staging_path.chmod(mode)
    if good:
        written(staging_path, (A, b"first"))
    else:
        with pytest.raises(WriteFailed, match="with mode 777: must be a directory of user"):
            written(staging_path, (A, b"first"))


def test_a_directory_of_another_user(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    os.chown(tmp_path, 54_321, -1) if os.geteuid() == 0 else None
    with pytest.raises(WriteFailed, match=r"user .* owns it, .* must be a directory of user 12345"):
        written(tmp_path, (A, b"first"))


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteFailed, match="file/staging"):
        written(tmp_path / "file" / "staging", (A, b"first"))


def test_a_try_that_fails_leaves_nothing(tmp_path):
    file = StagingFile(str(tmp_path))
    file.add(A, b"half", 1)
    file.discard()
    assert os.listdir(tmp_path) == []


def test_only_old_staged_files_are_reaped(tmp_path):
    old, young = written(tmp_path, (A, b"old")), written(tmp_path, (A, b"young"))
    (tmp_path / "other").write_bytes(b"not ours")
    for path in (old.path, tmp_path / "other"):
        os.utime(path, (0, time.time() - staging.REAP_AGE_S - 60))
    staging.reap(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(young.path), "other"])
    staging.reap(str(tmp_path / "never made"))


def test_discarding_is_quiet_about_what_is_gone(tmp_path):
    files = [written(tmp_path, (A, b"x")), written(tmp_path)]
    staging.discard(files)
    staging.discard(files)
    assert os.listdir(tmp_path) == []
