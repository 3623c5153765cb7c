"""Settings that remember their past, such as the limit before its last change."""

from logwright.versioned import VersionedKVStore, VersionedRecovery

with VersionedKVStore("state", "settings", sync="always") as store:
    before = store.insert("limit", {"per_hour": 100})  # the time of the change
    store.insert("limit", {"per_hour": 500})
    print("now:", store.get("limit"))

past = VersionedRecovery.load("state", store="settings")  # needs no lock
print("before:", past.recover_at(before)["limit"])
print("all:", [entry.o for entry in past.history("limit")])
