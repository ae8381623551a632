#!/usr/bin/env bash
# Write rpmdb.sqlite.gz: the RPM database of an installation with a few packages in the versions of Rocky Linux 9.2.
# Debian's rpm package makes it, so that it is what RPM writes and not what we believe that it writes:
#   apt-get install rpm && test/images/files/rocky-9/make-rpmdb.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# package SOURCE EPOCH VERSION RELEASE [PACKAGE [PREAMBLE]] builds an empty package from a source package.
package() {
  local source=$1 epoch=$2 version=$3 release=$4 package=${5:-$1} preamble=${6:-}
  {
    printf 'Name: %s\nVersion: %s\nRelease: %s\nSummary: %s\nLicense: MIT\n%s\n' "$source" "$version" "$release" "$source" "$preamble"
    [ "$epoch" = - ] || printf 'Epoch: %s\n' "$epoch"
    printf '%%description\n%s, without its files.\n' "$source"
    if [ "$package" = "$source" ]; then printf '%%files\n'; else
      printf '%%package -n %s\nSummary: %s\n%%description -n %s\n%s, without its files.\n%%files -n %s\n' "$package" "$package" "$package" "$package" "$package"
    fi
  } >"$work/$package.spec"
  # A fixed host and time: the same input gives the same headers.
  SOURCE_DATE_EPOCH=1688169600 rpmbuild --quiet -bb --target x86_64 --define "_topdir $work" --define "_rpmdir $work/rpms" \
    --define "_buildhost example.org" --define "use_source_date_epoch_as_buildtime 1" "$work/$package.spec"
}

package openssl 1 3.0.7 6.el9_2 openssl-libs
package glibc - 2.34 60.el9
package curl - 7.76.1 23.el9 libcurl-minimal
package expat - 2.5.0 1.el9
package tar 2 1.34 6.el9
package libgcrypt - 1.10.0 10.el9
# Advisories for the plain package do not count in a module of the same name.
package bash - 5.1.8 1.el9 bash "ModularityLabel: shell:5.1:9020:abc"

mkdir "$work/db"
rpm --dbpath "$work/db" --define "_db_backend sqlite" --justdb --nodeps --ignorearch --ignoreos -i "$work"/rpms/x86_64/*.rpm
# The write-ahead log belongs to the database: fold it in, as a shutdown does.
python3 -c 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute("PRAGMA journal_mode=DELETE"); c.execute("VACUUM")' "$work/db/rpmdb.sqlite"
gzip -9 -n <"$work/db/rpmdb.sqlite" >"$here/rpmdb.sqlite.gz"
ls -l "$here/rpmdb.sqlite.gz"
