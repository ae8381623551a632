package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
)

// rendered returns the policies and bindings that kustomize prints.
func rendered(t *testing.T, dir string) (policies []admissionv1.ValidatingAdmissionPolicy, bindings map[string]admissionv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	objects, err := decode(render(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	bindings = map[string]admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, object := range objects {
		var policy admissionv1.ValidatingAdmissionPolicy
		var binding admissionv1.ValidatingAdmissionPolicyBinding
		switch object.GetKind() {
		case "ValidatingAdmissionPolicy":
			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &policy, true)
			policies = append(policies, policy)
		case "ValidatingAdmissionPolicyBinding":
			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &binding, true)
			bindings[binding.Spec.PolicyName] = binding
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(policies) < 8 {
		t.Fatalf("only %d policies are installed", len(policies))
	}
	return policies, bindings
}

// config is the directory of the project's manifests.
var config = filepath.Join("..", "..", "config")

// Each policy applies only to the ServiceAccount in its name, denies on failure, and is bound.
func TestPoliciesApplyToOneAccount(t *testing.T) {
	policies, bindings := rendered(t, filepath.Join(config, "default"))
	for _, policy := range policies {
		checkUser(t, policy, home)
		if p := policy.Spec.FailurePolicy; p == nil || *p != admissionv1.Fail {
			t.Errorf("%s: a rule that fails lets everything pass", policy.Name)
		}
		if policy.Spec.ParamKind != nil {
			t.Errorf("%s: has parameters; while they are not there, everybody is refused, or nobody", policy.Name)
		}
		binding := bindings[policy.Name]
		if actions := binding.Spec.ValidationActions; len(actions) != 1 || actions[0] != admissionv1.Deny || binding.Spec.MatchResources != nil {
			t.Errorf("%s: its binding does not deny everywhere: %+v", policy.Name, binding.Spec)
		}
		for i, rule := range policy.Spec.Validations {
			if rule.Message == "" {
				t.Errorf("%s: rule %d does not say what is wrong", policy.Name, i)
			}
		}
	}
}

func checkUser(t *testing.T, policy admissionv1.ValidatingAdmissionPolicy, namespace string) {
	t.Helper()
	account := manager
	if strings.HasPrefix(policy.Name, notifier) {
		account = notifier
	}
	want := "request.userInfo.username == 'system:serviceaccount:" + namespace + ":" + account + "'"
	if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != want {
		t.Errorf("%s: is about %+v, want %s", policy.Name, c, want)
	}
}

// If the namespace is changed in config/default or in an overlay, the policies are for that namespace.
func TestPoliciesFollowTheNamespace(t *testing.T) {
	requireAssets(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(config)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.Replace(string(text), "namespace: "+home, "namespace: elsewhere", 1))
	for what, kustomization := range map[string]string{"in config/default": filepath.Join(dir, "default"), "in an overlay": overlay(t, "elsewhere")} {
		t.Run(what, func(t *testing.T) {
			policies, _ := rendered(t, kustomization)
			for _, policy := range policies {
				checkUser(t, policy, "elsewhere")
			}
		})
	}
}

// The policy allows the image that is configured for the manager.
func TestPolicyFollowsTheWorkersImage(t *testing.T) {
	for want, kustomization := range map[string]string{"scanner-grype": filepath.Join(config, "default"), workerImage: overlay(t, home)} {
		policies, _ := rendered(t, kustomization)
		got := ""
		for _, policy := range policies {
			for _, variable := range policy.Spec.Variables {
				if variable.Name == "workerImage" {
					got = variable.Expression
				}
			}
		}
		if got != "'"+want+"'" {
			t.Errorf("the policy allows the image %s, the manager is configured with %s", got, want)
		}
	}
}

// The API server would report no type warnings in status.typeChecking, which needs a controller manager.
func TestPoliciesHaveNoTypeWarnings(t *testing.T) {
	c := sharedCluster(t)
	schemas, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	checker := &validating.TypeChecker{SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: schemas}, RestMapper: c.admin.RESTMapper()}
	policies, _ := rendered(t, filepath.Join(config, "default"))
	for _, policy := range policies {
		for _, warning := range checker.Check(&policy) {
			t.Errorf("%s: %s: %s", policy.Name, warning.FieldRef, warning.Warning)
		}
	}
	// An invalid expression shows that the checker works.
	policies[0].Spec.Validations[0].Expression = "object.specification.x == 1"
	if len(checker.Check(&policies[0])) == 0 {
		t.Errorf("a field that does not exist gives no warning: the policies were not checked")
	}
}

// oldestKubernetes is the minor version before the first supported one. An API server accepts new expressions only if the version before
// it knows them, so that it can be rolled back.
var oldestKubernetes = version.MustParse("1.34").SubtractMinor(1)

// Every expression compiles in the oldest Kubernetes version.
func TestExpressionsCompileForTheOldestKubernetes(t *testing.T) {
	policies, _ := rendered(t, filepath.Join(config, "default"))
	for _, policy := range policies {
		compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldestKubernetes))
		if err != nil {
			t.Fatal(err)
		}
		options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
		check := func(what, text string, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %s: %s: %v", policy.Name, what, text, err)
			}
		}
		for _, v := range policy.Spec.Variables {
			variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
			check(v.Name, v.Expression, failed(compiler.CompileAndStoreVariable(variable, options, environment.NewExpressions)))
		}
		for _, m := range policy.Spec.MatchConditions {
			check(m.Name, m.Expression, failed(compiler.CompileCELExpression(&validating.ValidationCondition{Expression: m.Expression}, options, environment.NewExpressions)))
		}
		for _, v := range policy.Spec.Validations {
			check(v.Message, v.Expression, failed(compiler.CompileCELExpression(&validating.ValidationCondition{Expression: v.Expression}, options, environment.NewExpressions)))
		}
	}
}

func failed(result plugincel.CompilationResult) error {
	if result.Error == nil {
		return nil
	}
	return errors.New(result.Error.Error())
}
