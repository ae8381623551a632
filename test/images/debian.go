package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/scanner-operator/scanner-operator/hack/images/build"
)

// postgreSQLPackages are PostgreSQL of Debian 12, the libraries of the server and of its extension uuid-ossp, a shell for the entry
// point and initdb, the locale C.UTF-8, and the time zones. The list is written by hand because the packages' dependencies include Perl
// and a compiler backend.
var postgreSQLPackages = strings.Fields(`
	postgresql-15 dash libc-bin tzdata
	libaudit1 libc6 libcap-ng0 libcap2 libcom-err2 libffi8 libgcc-s1 libgcrypt20 libgmp10 libgnutls30 libgpg-error0
	libgssapi-krb5-2 libhogweed6 libicu72 libidn2-0 libk5crypto3 libkeyutils1 libkrb5-3 libkrb5support0 libldap-2.5-0 liblz4-1
	liblzma5 libnettle8 libp11-kit0 libpam0g libpq5 libsasl2-2 libssl3 libstdc++6 libsystemd0 libtasn1-6
	libunistring2 libuuid1 libxml2 libzstd1 zlib1g`)

// leftOut are directories of Debian's packages that no program reads here, and PostgreSQL's JIT compiler, whose library is larger than
// everything else.
var leftOut = []string{
	"/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/lintian/", "/usr/share/bug/",
	"/usr/share/postgresql/15/man/", "/usr/lib/postgresql/15/lib/bitcode/", "/usr/lib/postgresql/15/lib/llvmjit",
}

// maxPackages bounds the total size of an image's unpacked packages, in bytes.
const maxPackages = 512 << 20

// buildFromPackages builds an image from Debian packages, with the entry point of the distribution's directory below files.
func (d definition) buildFromPackages(ctx context.Context, cache string, platform v1.Platform) (v1.Image, error) {
	archives, err := debianPackages(ctx, filepath.Join(cache, "debian"), d.packages)
	if err != nil {
		return nil, err
	}
	installed, err := unpackPackages(ctx, archives)
	if err != nil {
		return nil, err
	}
	base, err := build.Files(installed)
	if err != nil {
		return nil, err
	}
	script, err := embedded.ReadFile("files/" + d.distribution + "/entrypoint.sh")
	if err != nil {
		return nil, err
	}
	uid, _, _ := strings.Cut(d.user, ":")
	own, err := build.Files(map[string]build.File{
		"/entrypoint.sh": {Content: script, Mode: 0o755},
		"/tmp":           {Mode: directoryMode | 0o777},
		// Programs look up the name of their user.
		"/etc/passwd": {Content: []byte("postgres:x:" + d.user + "::/tmp:/bin/sh\n")},
		"/etc/group":  {Content: []byte("postgres:x:" + uid + ":\n")},
	})
	if err != nil {
		return nil, err
	}
	return build.Image(build.Config{
		Platform: platform, User: d.user, Entrypoint: []string{"/entrypoint.sh"},
		Env: []string{"PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
	}, base, own)
}

// debianPackages downloads packages with apt-get for this machine's architecture, and returns their files. A list of packages is
// downloaded only once.
func debianPackages(ctx context.Context, cache string, packages []string) ([]string, error) {
	list := sha256.Sum256([]byte(strings.Join(packages, " ")))
	dir := filepath.Join(cache, hex.EncodeToString(list[:8]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := download(ctx, dir, packages); err != nil {
			return nil, err
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(archives) != len(packages) {
		err = fmt.Errorf("%s holds %d packages, expected %d: remove it", dir, len(archives), len(packages))
	}
	return archives, err
}

// download downloads packages to a directory. The directory is created only when all packages are downloaded.
func download(ctx context.Context, dir string, packages []string) error {
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	// apt-get downloads as an unprivileged user where it can.
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	get := func(args ...string) error {
		command := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
		command.Dir = temporary
		if text, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, text)
		}
		return nil
	}
	wanted := append([]string{"download"}, packages...)
	if err := get(wanted...); err != nil {
		// The package index of a fresh machine is empty or old.
		if err := get("update"); err != nil {
			return err
		}
		if err := get(wanted...); err != nil {
			return fmt.Errorf("%w\n(the packages are those of Debian 12)", err)
		}
	}
	return os.Rename(temporary, dir)
}

// unpackPackages returns the files of Debian packages, by path.
func unpackPackages(ctx context.Context, archives []string) (map[string]build.File, error) {
	files := map[string]build.File{}
	left := int64(maxPackages)
	for _, archive := range archives {
		command := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", archive)
		content, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("dpkg-deb %s: %w", archive, err)
		}
		if left -= int64(len(content)); left < 0 {
			return nil, fmt.Errorf("the packages are larger than %d bytes", maxPackages)
		}
		if err := readTar(tar.NewReader(bytes.NewReader(content)), files); err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
	}
	return files, nil
}

// readTar adds the files of an archive to files, without those in leftOut. Directories are implied by the files in them.
func readTar(archive *tar.Reader, files map[string]build.File) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Join("/", header.Name)
		if isLeftOut(name) {
			continue
		}
		switch header.Typeflag {
		case tar.TypeReg:
			content, err := io.ReadAll(archive)
			if err != nil {
				return err
			}
			files[name] = build.File{Content: content, Mode: header.FileInfo().Mode().Perm()}
		case tar.TypeSymlink:
			files[name] = build.File{Link: header.Linkname}
		case tar.TypeLink:
			files[name] = files[path.Join("/", header.Linkname)]
		}
	}
}

func isLeftOut(name string) bool {
	for _, prefix := range leftOut {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
