package clair

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// postgresUser is the user and group ID of PostgreSQL in the image.
const postgresUser = 999

// data is the directory of the database in the image.
const data = "/var/lib/postgresql/data"

// unpackPostgreSQL unpacks the image into a directory and adds what a container runtime provides: a directory for the data, and the few
// devices that PostgreSQL opens.
func unpackPostgreSQL(project, root string) error {
	image, err := images.Load(scenario.ImagesDir(project), images.PostgreSQL)
	if err != nil {
		return err
	}
	content := mutate.Extract(image)
	defer content.Close()
	if err := unpack(tar.NewReader(content), root); err != nil {
		return err
	}
	for dir, mode := range map[string]os.FileMode{data: 0o700, "/dev/shm": 0o777, "/": 0o755} {
		dir = filepath.Join(root, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, mode)); err != nil {
			return err
		}
	}
	null := filepath.Join(root, "dev", "null")
	const nullDevice = 1<<8 | 3 // major and minor number of /dev/null
	return errors.Join(os.Chown(filepath.Join(root, data), postgresUser, postgresUser),
		syscall.Mknod(null, syscall.S_IFCHR, nullDevice), os.Chmod(null, 0o666))
}

// unpack writes directories, files and symbolic links. The project's own images contain nothing else.
func unpack(archive *tar.Reader, root string) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(root, header.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = errors.Join(os.MkdirAll(name, 0o755), os.Chmod(name, header.FileInfo().Mode()))
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, name)
		default:
			err = writeFile(name, archive, header.FileInfo().Mode())
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(name string, content io.Reader, mode os.FileMode) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// postgreSQL returns the command of the image, listening on a port of the loopback address only.
func postgreSQL(root, port, password string) *exec.Cmd {
	command := exec.Command("/entrypoint.sh", "-p", port, "-c", "listen_addresses=127.0.0.1")
	command.Dir = "/"
	command.Env = []string{
		"PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PGDATA=" + data,
		"POSTGRES_USER=clair", "POSTGRES_DB=clair", "POSTGRES_PASSWORD=" + password,
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Credential: &syscall.Credential{Uid: postgresUser, Gid: postgresUser},
	}
	return command
}
