package scenario

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// PrivateRegistry contains the same images as the demo's registry. It uses TLS with its own authority and requires a password.
type PrivateRegistry struct {
	// Host includes the port.
	Host           string
	User, Password string
	// Authority is the authority of its certificate, PEM.
	Authority string
}

// privateRegistryFromEnvironment reads the settings of the local cluster's private registry; nil if there is none.
func privateRegistryFromEnvironment() (*PrivateRegistry, error) {
	host := os.Getenv("SCANNER_PRIVATE_REGISTRY")
	if host == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(os.Getenv("SCANNER_PRIVATE_REGISTRY_CA"))
	if err != nil {
		return nil, fmt.Errorf("SCANNER_PRIVATE_REGISTRY_CA: %w", err)
	}
	return &PrivateRegistry{
		Host: host, User: os.Getenv("SCANNER_PRIVATE_REGISTRY_USER"), Password: os.Getenv("SCANNER_PRIVATE_REGISTRY_PASSWORD"),
		Authority: string(authority),
	}, nil
}

// Reference returns the reference in the private registry for an image of the open registry.
func (r *PrivateRegistry) Reference(open string) (string, error) {
	_, path, found := strings.Cut(open, "/")
	if !found {
		return "", errors.New(open + " names no registry")
	}
	return r.Host + "/" + path, nil
}

// DockerConfig returns the content of a pull secret with the given password.
func (r *PrivateRegistry) DockerConfig(password string) (string, error) {
	text, err := json.Marshal(map[string]any{"auths": map[string]any{r.Host: map[string]string{
		"auth": base64.StdEncoding.EncodeToString([]byte(r.User + ":" + password)),
	}}})
	return string(text), err
}
