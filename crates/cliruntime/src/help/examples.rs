//! Examples of every command, as `--help` shows them.

/// What an example does, and its command line.
pub type Example = (&'static str, &'static str);

/// The examples of a command, by its path without `kubectl`.
pub fn of(path: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(command, _)| *command == path).map_or(&[], |(_, examples)| examples)
}

const EXAMPLES: &[(&str, &[Example])] = &[
    ("alpha", &[("See which commands are not ready yet", "kubectl alpha")]),
    (
        "annotate",
        &[
            ("Note who looks after a pod", "kubectl annotate pods web owner='team a'"),
            ("Change a note that is there", "kubectl annotate --overwrite pods web owner='team b'"),
            ("Take a note away from every pod of the namespace", "kubectl annotate pods --all owner-"),
        ],
    ),
    (
        "api-resources",
        &[
            ("Show every kind of object that the server knows", "kubectl api-resources"),
            ("Show kinds of one group, with their verbs", "kubectl api-resources --api-group=apps -o wide"),
        ],
    ),
    ("api-versions", &[("Show every version of every group", "kubectl api-versions")]),
    (
        "apply",
        &[
            ("Apply what a file says", "kubectl apply -f web.yaml"),
            ("Apply a kustomization", "kubectl apply -k overlays/production"),
            (
                "Let the server merge, and own fields under a name",
                "kubectl apply --server-side --field-manager=ci -f web.yaml",
            ),
            ("Show each hop of this apply as it happens", "kubectl apply -f web.yaml --trace"),
        ],
    ),
    (
        "apply edit-last-applied",
        &[("Edit what was applied last, as JSON", "kubectl apply edit-last-applied deployment/web -o json")],
    ),
    (
        "apply set-last-applied",
        &[("Let the annotation say what a file says", "kubectl apply set-last-applied -f web.yaml")],
    ),
    ("apply view-last-applied", &[("Show what was applied last", "kubectl apply view-last-applied deployment/web")]),
    (
        "attach",
        &[
            ("See what a pod's container writes", "kubectl attach web"),
            ("Talk to a shell that runs in a container", "kubectl attach web -c shell -i -t"),
        ],
    ),
    (
        "auth can-i",
        &[
            ("Ask whether you may create pods anywhere", "kubectl auth can-i create pods --all-namespaces"),
            ("Ask for somebody else", "kubectl auth can-i list secrets --as=jane"),
            ("Show all that you may do", "kubectl auth can-i --list"),
        ],
    ),
    ("auth reconcile", &[("Bring roles and bindings to what a file says", "kubectl auth reconcile -f roles.yaml")]),
    ("auth whoami", &[("Show who the server takes you for", "kubectl auth whoami")]),
    (
        "autoscale",
        &[(
            "Keep between 2 and 10 pods, at 80% of their CPU",
            "kubectl autoscale deployment web --min=2 --max=10 --cpu=80%",
        )],
    ),
    ("certificate approve", &[("Approve a request", "kubectl certificate approve csr-web")]),
    ("certificate deny", &[("Deny a request", "kubectl certificate deny csr-web")]),
    ("cluster-info", &[("Show where the control plane is", "kubectl cluster-info")]),
    (
        "cluster-info dump",
        &[("Write the state of the cluster into a directory", "kubectl cluster-info dump --output-directory=state")],
    ),
    (
        "completion",
        &[
            ("Complete words in this bash", "source <(kubectl completion bash)"),
            ("Complete words in every zsh", "kubectl completion zsh > \"${fpath[1]}/_kubectl\""),
        ],
    ),
    ("config current-context", &[("Show the context in use", "kubectl config current-context")]),
    ("config delete-cluster", &[("Forget a cluster", "kubectl config delete-cluster old")]),
    ("config delete-context", &[("Forget a context", "kubectl config delete-context old")]),
    ("config delete-user", &[("Forget a user", "kubectl config delete-user jane")]),
    ("config get-clusters", &[("List the clusters that kubectl knows", "kubectl config get-clusters")]),
    (
        "config get-contexts",
        &[
            ("List all contexts", "kubectl config get-contexts"),
            ("Describe one of them", "kubectl config get-contexts production"),
        ],
    ),
    ("config get-users", &[("List the users that kubectl knows", "kubectl config get-users")]),
    (
        "config rename-context",
        &[("Give a context another name", "kubectl config rename-context kubernetes-admin production")],
    ),
    (
        "config set",
        &[("Set the address of a cluster", "kubectl config set clusters.production.server https://10.0.0.1:6443")],
    ),
    (
        "config set-cluster",
        &[(
            "Set the address and the authority of a cluster",
            "kubectl config set-cluster production --server=https://10.0.0.1:6443 --certificate-authority=ca.crt --embed-certs",
        )],
    ),
    (
        "config set-context",
        &[("Use another namespace from now on", "kubectl config set-context --current --namespace=team-a")],
    ),
    (
        "config set-credentials",
        &[
            (
                "Use a certificate",
                "kubectl config set-credentials jane --client-certificate=jane.crt --client-key=jane.key",
            ),
            (
                "Use a program that gets tokens",
                "kubectl config set-credentials jane --exec-command=get-token --exec-api-version=client.authentication.k8s.io/v1",
            ),
        ],
    ),
    ("config unset", &[("Forget the namespace of a context", "kubectl config unset contexts.production.namespace")]),
    ("config use-context", &[("Use another context from now on", "kubectl config use-context production")]),
    (
        "config view",
        &[
            ("Show the merged configuration", "kubectl config view"),
            (
                "Show the password of a user",
                "kubectl config view --raw -o jsonpath='{.users[?(@.name == \"jane\")].user.password}'",
            ),
        ],
    ),
    ("cordon", &[("Let no new pods come to a node", "kubectl cordon node-1")]),
    (
        "cp",
        &[
            ("Copy a directory into a pod", "kubectl cp conf web:/etc/conf"),
            (
                "Copy a file out of a container in another namespace",
                "kubectl cp team-a/web:/var/log/web.log web.log -c web",
            ),
        ],
    ),
    (
        "create",
        &[
            ("Create what a file says", "kubectl create -f web.yaml"),
            ("Create what another program writes", "cat web.json | kubectl create -f -"),
        ],
    ),
    (
        "create clusterrole",
        &[
            ("Let pods be read", "kubectl create clusterrole reader --verb=get,list,watch --resource=pods"),
            ("Let a path be read", "kubectl create clusterrole prober --verb=get --non-resource-url=/healthz"),
        ],
    ),
    (
        "create clusterrolebinding",
        &[(
            "Let a user do everything",
            "kubectl create clusterrolebinding jane-admin --clusterrole=cluster-admin --user=jane",
        )],
    ),
    (
        "create configmap",
        &[
            ("From the files of a directory", "kubectl create configmap settings --from-file=conf/"),
            ("From values", "kubectl create configmap settings --from-literal=colour=red --from-literal=size=3"),
        ],
    ),
    (
        "create cronjob",
        &[(
            "Say the time every minute",
            "kubectl create cronjob clock --image=busybox --schedule='*/1 * * * *' -- date",
        )],
    ),
    (
        "create deployment",
        &[("Three pods of an image", "kubectl create deployment web --image=nginx --replicas=3 --port=80")],
    ),
    (
        "create ingress",
        &[(
            "Send what begins with a path to a service",
            "kubectl create ingress web --class=nginx --rule='example.com/shop*=shop:8080,tls=shop-cert'",
        )],
    ),
    (
        "create job",
        &[
            ("Run a command once", "kubectl create job once --image=busybox -- date"),
            ("Run what a cron job runs, now", "kubectl create job now --from=cronjob/clock"),
        ],
    ),
    ("create namespace", &[("Create a namespace", "kubectl create namespace team-a")]),
    (
        "create poddisruptionbudget",
        &[("Keep one pod available", "kubectl create poddisruptionbudget web --selector=app=web --min-available=1")],
    ),
    (
        "create priorityclass",
        &[(
            "A class that waits for its turn",
            "kubectl create priorityclass high --value=1000 --preemption-policy=Never",
        )],
    ),
    (
        "create quota",
        &[("Limit what a namespace may ask for", "kubectl create quota limits --hard=cpu=4,memory=8Gi,pods=20")],
    ),
    (
        "create role",
        &[(
            "Let pods and their logs be read",
            "kubectl create role reader --verb=get --verb=list --resource=pods,pods/log",
        )],
    ),
    (
        "create rolebinding",
        &[(
            "Let a service account read",
            "kubectl create rolebinding web-reads --clusterrole=view --serviceaccount=team-a:web",
        )],
    ),
    (
        "create secret docker-registry",
        &[(
            "Credentials of a registry",
            "kubectl create secret docker-registry pull --docker-server=registry.example.com --docker-username=jane --docker-password=secret",
        )],
    ),
    (
        "create secret generic",
        &[(
            "From values and files",
            "kubectl create secret generic keys --from-literal=user=jane --from-file=ssh=id_ed25519",
        )],
    ),
    (
        "create secret tls",
        &[("From a certificate and its key", "kubectl create secret tls web --cert=web.crt --key=web.key")],
    ),
    (
        "create service clusterip",
        &[
            ("A port of the pods at another port", "kubectl create service clusterip web --tcp=80:8080"),
            ("Only names, no address", "kubectl create service clusterip web --clusterip=None"),
        ],
    ),
    (
        "create service externalname",
        &[("Another name for a host", "kubectl create service externalname db --external-name=db.example.com")],
    ),
    (
        "create service loadbalancer",
        &[("A port that a load balancer has", "kubectl create service loadbalancer web --tcp=80:8080")],
    ),
    ("create service nodeport", &[("A port that every node has", "kubectl create service nodeport web --tcp=80:8080")]),
    ("create serviceaccount", &[("Create a service account", "kubectl create serviceaccount web")]),
    ("create token", &[("A token for ten minutes", "kubectl create token web --duration=10m")]),
    (
        "debug",
        &[
            (
                "Look into a running pod from a container beside it",
                "kubectl debug web -it --image=busybox --target=web",
            ),
            ("Try another image in a copy", "kubectl debug web --copy-to=web-copy --set-image=web=nginx:edge"),
            ("Look at a node", "kubectl debug node/node-1 -it --image=busybox"),
        ],
    ),
    (
        "delete",
        &[
            ("Delete what a file names", "kubectl delete -f web.yaml"),
            ("Delete pods and services by label", "kubectl delete pods,services -l app=web"),
            ("Delete a pod at once", "kubectl delete pod web --now"),
        ],
    ),
    (
        "describe",
        &[
            ("Tell all about a pod", "kubectl describe pods/web"),
            ("Tell about every node", "kubectl describe nodes"),
            ("Tell about pods by label", "kubectl describe pods -l app=web"),
        ],
    ),
    ("diff", &[("Show what apply would change", "kubectl diff -f web.yaml")]),
    ("drain", &[("Empty a node before work on it", "kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data")]),
    (
        "edit",
        &[
            ("Edit a service", "kubectl edit svc/web"),
            ("Edit with another editor", "KUBE_EDITOR='nano' kubectl edit deployment/web"),
        ],
    ),
    (
        "events",
        &[
            ("What happened in the namespace", "kubectl events"),
            ("What happens to a pod from now on", "kubectl events --for=pod/web --watch"),
        ],
    ),
    (
        "exec",
        &[
            ("Run a command in the first container of a pod", "kubectl exec web -- date"),
            ("Open a shell in a container", "kubectl exec web -c web -i -t -- sh"),
        ],
    ),
    (
        "explain",
        &[
            ("What a pod is made of", "kubectl explain pods"),
            ("What a field is for", "kubectl explain pods.spec.containers"),
        ],
    ),
    ("expose", &[("Give a deployment a service", "kubectl expose deployment web --port=80 --target-port=8080")]),
    (
        "get",
        &[
            ("List the pods of the namespace", "kubectl get pods"),
            ("List pods everywhere, with their nodes", "kubectl get pods -A -o wide"),
            ("Show one object whole", "kubectl get deployment web -o yaml"),
            ("Show one value", "kubectl get pod web -o jsonpath='{.status.podIP}'"),
            ("Follow what happens", "kubectl get pods -w"),
            ("Ask several clusters at once", "kubectl get nodes --contexts=staging,production"),
        ],
    ),
    (
        "kuberc set",
        &[
            ("Let get be wide", "kubectl kuberc set --section=defaults --command=get --option=output=wide"),
            (
                "Another name for a command",
                "kubectl kuberc set --section=aliases --name=getn --command=get --prependarg=nodes",
            ),
        ],
    ),
    ("kuberc view", &[("Show your preferences", "kubectl kuberc view")]),
    ("kustomize", &[("Show what a kustomization makes", "kubectl kustomize overlays/production")]),
    (
        "label",
        &[
            ("Give a pod a label", "kubectl label pods web tier=front"),
            ("Take it away again", "kubectl label pods web tier-"),
        ],
    ),
    (
        "logs",
        &[
            ("What a pod wrote", "kubectl logs web"),
            ("Follow all containers of all pods by label", "kubectl logs -f -l app=web --all-containers --prefix"),
            ("The last lines before it was restarted", "kubectl logs web --previous --tail=20"),
        ],
    ),
    ("options", &[("Show the flags of every command", "kubectl options")]),
    (
        "patch",
        &[
            ("Change one field", "kubectl patch node node-1 -p '{\"spec\":{\"unschedulable\":true}}'"),
            (
                "Change an item of a list by its place",
                "kubectl patch pod web --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/containers/0/image\",\"value\":\"nginx:2\"}]'",
            ),
        ],
    ),
    ("plugin list", &[("Show which plug-ins there are", "kubectl plugin list")]),
    (
        "port-forward",
        &[
            ("Reach a pod's port at one of this machine", "kubectl port-forward pod/web 8080:80"),
            ("Reach a service by any free port", "kubectl port-forward service/web :80"),
        ],
    ),
    ("proxy", &[("Reach the server without credentials from this machine", "kubectl proxy --port=8001")]),
    ("replace", &[("Replace an object by what a file says", "kubectl replace -f web.yaml")]),
    ("rollout", &[("Go back to what was before", "kubectl rollout undo deployment/web")]),
    ("rollout history", &[("Show earlier versions", "kubectl rollout history deployment/web")]),
    ("rollout pause", &[("Hold a rollout", "kubectl rollout pause deployment/web")]),
    ("rollout restart", &[("Replace every pod", "kubectl rollout restart deployment/web")]),
    ("rollout resume", &[("Go on with a rollout", "kubectl rollout resume deployment/web")]),
    ("rollout status", &[("Wait until a rollout is done", "kubectl rollout status deployment/web --timeout=5m")]),
    ("rollout undo", &[("Go back to a version", "kubectl rollout undo deployment/web --to-revision=3")]),
    (
        "run",
        &[
            ("Start a pod", "kubectl run web --image=nginx --port=80"),
            (
                "Try something in a shell, and leave nothing behind",
                "kubectl run try -i -t --rm --restart=Never --image=busybox -- sh",
            ),
        ],
    ),
    ("scale", &[("Ask for three pods", "kubectl scale deployment/web --replicas=3")]),
    ("set env", &[("Set a variable in every container", "kubectl set env deployment/web COLOUR=red")]),
    ("set image", &[("Roll out another image", "kubectl set image deployment/web web=nginx:2")]),
    (
        "set resources",
        &[(
            "Limit what a container may use",
            "kubectl set resources deployment web -c=web --limits=cpu=200m,memory=512Mi",
        )],
    ),
    ("set selector", &[("Send a service's traffic elsewhere", "kubectl set selector service web app=web,track=new")]),
    ("set serviceaccount", &[("Run pods as another account", "kubectl set serviceaccount deployment web web")]),
    ("set subject", &[("Bind a role to one more user", "kubectl set subject rolebinding readers --user=jane")]),
    (
        "taint",
        &[
            ("Keep pods away that do not tolerate it", "kubectl taint nodes node-1 dedicated=gpu:NoSchedule"),
            ("Take it back", "kubectl taint nodes node-1 dedicated:NoSchedule-"),
        ],
    ),
    ("top live", &[("What everything uses, as it changes", "kubectl top live")]),
    ("top node", &[("What each node uses", "kubectl top node")]),
    ("top pod", &[("What each container uses, the hungriest first", "kubectl top pod --containers --sort-by=memory")]),
    ("uncordon", &[("Let pods come to a node again", "kubectl uncordon node-1")]),
    ("version", &[("Show the versions of kubectl and of the server", "kubectl version")]),
    (
        "wait",
        &[
            ("Wait until a pod is ready", "kubectl wait --for=condition=Ready pod/web"),
            ("Wait until it is gone", "kubectl wait --for=delete pod/web --timeout=60s"),
        ],
    ),
    (
        "history",
        &[
            ("Every change of a pod that is kept, with who made it", "kubectl history pod/web-1"),
            ("What changed in the last ten minutes", "kubectl history deployments -A --from 10m"),
        ],
    ),
    (
        "undo",
        &[
            ("Show what would change", "kubectl undo deployment/web --to 1h --dry-run=server"),
            ("Make a deployment what it was at a revision", "kubectl undo deployment/web --to 4711"),
        ],
    ),
    ("trace", &[("Show what happened to a deployment and to what it owns", "kubectl trace deployment/web")]),
    ("ui", &[("Open the page of the cluster in a browser", "kubectl ui")]),
    ("why", &[("Why a pod is not ready, and what to do", "kubectl why web")]),
];
