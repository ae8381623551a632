package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/images"
)

// PostgreSQLDeployment is the Deployment of config/components/postgresql-trial.
const PostgreSQLDeployment = "deployment/scanner-operator-postgresql"

// pushPostgreSQL pushes the image that takes the place of docker.io/library/postgres. It is pushed once.
func (e *Environment) pushPostgreSQL(ctx context.Context) error {
	if e.postgreSQL != nil {
		return nil
	}
	pushed, err := e.pushPinned(ctx, images.PostgreSQL)
	if err == nil {
		e.postgreSQL = &pushed
	}
	return err
}

// pushPinned pushes an image, and returns it by digest.
func (e *Environment) pushPinned(ctx context.Context, name string) (pushedImage, error) {
	image, err := e.loadImage(name)
	if err != nil {
		return pushedImage{}, err
	}
	if _, err := e.Push(ctx, name, image); err != nil {
		return pushedImage{}, err
	}
	digest, err := image.Digest()
	return pushedImage{Repository: e.repository(name), Digest: digest.String()}, err
}

// prepareStore does what a user of config/components/postgresql-trial does before the installation: it creates the Secret, with a new
// password.
func (e *Environment) prepareStore(ctx context.Context) (string, error) {
	if err := e.pushPostgreSQL(ctx); err != nil {
		return "", err
	}
	return "a password, made here", e.Apply(ctx, "postgresql.yaml", map[string]string{"Namespace": SystemNamespace, "Label": Label, "Password": rand.Text()})
}

// checkStore checks that the operator works with its store on PostgreSQL, and has no volume.
func (e *Environment) checkStore(ctx context.Context) (string, error) {
	if err := e.WaitForRollout(ctx, SystemNamespace, PostgreSQLDeployment); err != nil {
		return "", err
	}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: SystemNamespace, Name: "scanner-operator-store"}, &corev1.PersistentVolumeClaim{})
	switch {
	case err == nil:
		return "", errors.New("expected no PersistentVolumeClaim of the store, there is one")
	case !apierrors.IsNotFound(err):
		return "", err
	}
	manager := func(command string) error {
		_, err := e.Kubectl(ctx, "exec", "--namespace", SystemNamespace, ManagerDeployment, "--", "/scanner-operator", command)
		return err
	}
	switch err := manager("backup"); {
	case err == nil:
		return "", errors.New("expected a store that is no file, its file was backed up")
	case !strings.Contains(err.Error(), "the store is on a PostgreSQL server"):
		return "", fmt.Errorf("expected that the store is on a server: %w", err)
	}
	return "no volume for the operator", manager("findings")
}
