package story

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// PrivateRegistry holds the same images as the registry of the story, behind TLS with an authority of its own and a
// password.
type PrivateRegistry struct {
	// Host with its port.
	Host           string
	User, Password string
	// Authority that signed its certificate, PEM.
	Authority string
}

// privateRegistryFromEnvironment reads what the local cluster says of its private registry; nil where there is none.
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

// Reference is where an image of the open registry lies in the private one.
func (r *PrivateRegistry) Reference(open string) (string, error) {
	_, path, found := strings.Cut(open, "/")
	if !found {
		return "", errors.New(open + " names no registry")
	}
	return r.Host + "/" + path, nil
}

// DockerConfig is the content of a pull secret with this password.
func (r *PrivateRegistry) DockerConfig(password string) (string, error) {
	text, err := json.Marshal(map[string]any{"auths": map[string]any{r.Host: map[string]string{
		"auth": base64.StdEncoding.EncodeToString([]byte(r.User + ":" + password)),
	}}})
	return string(text), err
}
